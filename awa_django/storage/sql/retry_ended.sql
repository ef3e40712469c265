-- An operator gives failed and cancelled jobs all their attempts again, due now.
-- Params: job_ids.
-- Index: jobs_hot_pkey.
-- The CTE locks in id order, whatever order a scan finds the rows in, and sees each as it is then.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.id = ANY (%(job_ids)s::bigint[])
      AND job.state IN ('failed', 'cancelled')
    ORDER BY job.id
    FOR UPDATE
)
UPDATE awa.jobs_hot AS job
SET state = 'available',
    attempt = 0,
    run_at = now(),
    finalized_at = NULL,
    heartbeat_at = NULL,
    deadline_at = NULL
WHERE job.id = ANY (ARRAY(SELECT target.id FROM target))
RETURNING job.id, job.queue
