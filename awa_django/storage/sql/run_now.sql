-- An operator makes deferred jobs available at once.
-- Params: job_ids.
-- Index: scheduled_jobs_pkey.
-- The CTE locks in id order, whatever order a scan finds the rows in, and sees each as it is then.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM awa.scheduled_jobs AS job
    WHERE job.id = ANY (%(job_ids)s::bigint[])
    ORDER BY job.id
    FOR UPDATE
),
moved AS (
    DELETE FROM awa.scheduled_jobs AS job
    WHERE job.id = ANY (ARRAY(SELECT target.id FROM target))
    RETURNING job.*
)
INSERT INTO awa.jobs_hot (
    id, kind, queue, args, state, priority, attempt, max_attempts, run_at, heartbeat_at, deadline_at,
    attempted_at, finalized_at, created_at, errors, metadata, tags, unique_key, unique_states,
    run_lease, progress, result, worker
)
SELECT
    moved.id, moved.kind, moved.queue, moved.args, 'available', moved.priority, moved.attempt,
    moved.max_attempts, now(), NULL, NULL, moved.attempted_at, NULL, moved.created_at, moved.errors,
    moved.metadata, moved.tags, moved.unique_key, moved.unique_states, moved.run_lease,
    moved.progress, moved.result, moved.worker
FROM moved
RETURNING id, queue
