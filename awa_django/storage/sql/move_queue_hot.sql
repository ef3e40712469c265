-- An operator moves hot jobs that wait to run to another queue. A unique key may be made from
-- the queue, so a job that has one stays.
-- Params: job_ids; queue.
-- Index: jobs_hot_pkey.
-- The CTE locks in id order, whatever order a scan finds the rows in, and sees each as it is then.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.id = ANY (%(job_ids)s::bigint[])
      AND job.state = 'available'
      AND job.unique_key IS NULL
    ORDER BY job.id
    FOR UPDATE
)
UPDATE awa.jobs_hot AS job
SET queue = %(queue)s::text
WHERE job.id = ANY (ARRAY(SELECT target.id FROM target))
RETURNING job.id, job.queue
