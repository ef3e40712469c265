-- What must be known of a job before its arguments are changed; its args are JSON text.
-- Params: job_id.
-- Index: jobs_hot_pkey, scheduled_jobs_pkey.
SELECT
    job.kind, job.queue, job.state::text, job.args::text, job.unique_key, job.run_at, job.created_at,
    (job.metadata -> 'awa:secret')::text
FROM awa.jobs_hot AS job
WHERE job.id = %(job_id)s::bigint
UNION ALL
SELECT
    job.kind, job.queue, job.state::text, job.args::text, job.unique_key, job.run_at, job.created_at,
    (job.metadata -> 'awa:secret')::text
FROM awa.scheduled_jobs AS job
WHERE job.id = %(job_id)s::bigint
