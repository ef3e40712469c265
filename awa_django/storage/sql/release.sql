-- Put attempts that were claimed and never started back: available, the attempt given back.
-- Params: job_ids, run_leases (parallel arrays).
-- Index: jobs_hot_pkey, one probe a run; locked in id order. Both are kept so as in complete.sql.
-- Priority and run_at are as they were, so the job keeps its place in line.
WITH attempt AS MATERIALIZED (
    SELECT job.id
    FROM unnest(
        (SELECT %(job_ids)s::bigint[]),
        (SELECT %(run_leases)s::bigint[])
    ) AS entry (job_id, run_lease)
    JOIN awa.jobs_hot AS job ON job.id = entry.job_id
    WHERE job.run_lease = entry.run_lease
      AND job.state::text = 'running'
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
)
UPDATE awa.jobs_hot AS job
SET state = 'available',
    attempt = greatest(job.attempt - 1, 0),
    heartbeat_at = NULL,
    deadline_at = NULL
FROM attempt
WHERE job.id = attempt.id
RETURNING job.id, job.queue
