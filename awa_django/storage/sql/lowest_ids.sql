-- The lowest id of the hot and of the deferred jobs; null where there is none.
-- Index: jobs_hot_pkey, scheduled_jobs_pkey.
SELECT
    (SELECT min(job.id) FROM awa.jobs_hot AS job),
    (SELECT min(job.id) FROM awa.scheduled_jobs AS job)
