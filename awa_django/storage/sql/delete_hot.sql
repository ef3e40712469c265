-- An operator deletes hot jobs that no worker runs.
-- Params: job_ids.
-- Index: jobs_hot_pkey.
-- The CTE locks in id order, whatever order a scan finds the rows in, and sees each as it is then.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.id = ANY (%(job_ids)s::bigint[])
      AND job.state IN ('available', 'completed', 'failed', 'cancelled')
    ORDER BY job.id
    FOR UPDATE
)
DELETE FROM awa.jobs_hot AS job
WHERE job.id = ANY (ARRAY(SELECT target.id FROM target))
RETURNING job.id, job.queue
