-- Where jobs are now: id, state, whether each has a unique key; an id that is nowhere is absent.
-- Params: job_ids.
-- Index: jobs_hot_pkey, scheduled_jobs_pkey.
SELECT job.id, job.state::text, job.unique_key IS NOT NULL
FROM awa.jobs_hot AS job
WHERE job.id = ANY (%(job_ids)s::bigint[])
UNION ALL
SELECT job.id, job.state::text, job.unique_key IS NOT NULL
FROM awa.scheduled_jobs AS job
WHERE job.id = ANY (%(job_ids)s::bigint[])
