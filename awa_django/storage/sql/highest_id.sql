-- The highest id of all jobs; null when there are none.
-- Index: jobs_hot_pkey, scheduled_jobs_pkey.
SELECT greatest(
    (SELECT max(job.id) FROM awa.jobs_hot AS job),
    (SELECT max(job.id) FROM awa.scheduled_jobs AS job)
)
