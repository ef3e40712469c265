-- An operator cancels hot jobs that have not ended; a run that is cut short leaves an error entry.
-- Params: job_ids; entry (JSON text: what the error entry says besides attempt, run_lease and time).
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
SET state = 'cancelled',
    finalized_at = now(),
    heartbeat_at = NULL,
    deadline_at = NULL,
    attempt = least(job.attempt, job.max_attempts),
    errors = CASE
        WHEN job.state = 'available' THEN job.errors
        ELSE job.errors || (
            %(entry)s::jsonb || jsonb_build_object(
                'attempt', least(job.attempt, job.max_attempts), 'run_lease', job.run_lease,
                'worker', job.worker, 'at', now()
            )
        )
    END
WHERE job.id = ANY (ARRAY(SELECT target.id FROM target))
RETURNING job.id, job.queue
