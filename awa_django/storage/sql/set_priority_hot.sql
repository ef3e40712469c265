-- An operator sets the priority of hot jobs that have not ended.
-- Params: job_ids; priority.
-- Index: jobs_hot_pkey.
-- The CTE locks in id order, whatever order a scan finds the rows in, and sees each as it is then.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.id = ANY (%(job_ids)s::bigint[])
      AND job.state IN ('available', 'running', 'waiting_external')
    ORDER BY job.id
    FOR UPDATE
)
UPDATE awa.jobs_hot AS job
SET priority = %(priority)s::smallint
WHERE job.id = ANY (ARRAY(SELECT target.id FROM target))
RETURNING job.id, job.queue
