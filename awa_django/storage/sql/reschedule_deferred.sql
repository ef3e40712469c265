-- An operator changes when deferred jobs are due; promotion moves them when that has come.
-- Params: job_ids; run_at.
-- Index: scheduled_jobs_pkey.
-- The age of a job with a max_age counts anew from that instant (see defer).
-- The CTE locks in id order, whatever order a scan finds the rows in, and sees each as it is then.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM awa.scheduled_jobs AS job
    WHERE job.id = ANY (%(job_ids)s::bigint[])
    ORDER BY job.id
    FOR UPDATE
)
UPDATE awa.scheduled_jobs AS job
SET run_at = %(run_at)s::timestamptz,
    metadata = job.metadata - 'awa:due_at'
WHERE job.id = ANY (ARRAY(SELECT target.id FROM target))
RETURNING job.id, job.queue
