-- An operator moves deferred jobs to another queue. A unique key may be made from
-- the queue, so a job that has one stays.
-- Params: job_ids; queue.
-- Index: scheduled_jobs_pkey.
-- The CTE locks in id order, whatever order a scan finds the rows in, and sees each as it is then.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM awa.scheduled_jobs AS job
    WHERE job.id = ANY (%(job_ids)s::bigint[])
      AND job.unique_key IS NULL
    ORDER BY job.id
    FOR UPDATE
)
UPDATE awa.scheduled_jobs AS job
SET queue = %(queue)s::text
WHERE job.id = ANY (ARRAY(SELECT target.id FROM target))
RETURNING job.id, job.queue
