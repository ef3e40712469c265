-- An operator sets the priority of deferred jobs.
-- Params: job_ids; priority.
-- Index: scheduled_jobs_pkey.
-- The CTE locks in id order, whatever order a scan finds the rows in, and sees each as it is then.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM awa.scheduled_jobs AS job
    WHERE job.id = ANY (%(job_ids)s::bigint[])
    ORDER BY job.id
    FOR UPDATE
)
UPDATE awa.scheduled_jobs AS job
SET priority = %(priority)s::smallint
WHERE job.id = ANY (ARRAY(SELECT target.id FROM target))
RETURNING job.id, job.queue
