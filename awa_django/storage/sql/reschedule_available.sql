-- An operator puts available jobs off: they move to the deferred table. Not for an instant that has come.
-- Params: job_ids; run_at.
-- Index: jobs_hot_pkey.
-- The age of a job with a max_age counts anew from that instant (see defer).
-- The CTE locks in id order, whatever order a scan finds the rows in, and sees each as it is then.
WITH target AS MATERIALIZED (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.id = ANY (%(job_ids)s::bigint[])
      AND job.state = 'available'
      AND %(run_at)s::timestamptz > now()
    ORDER BY job.id
    FOR UPDATE
),
moved AS (
    DELETE FROM awa.jobs_hot AS job
    WHERE job.id = ANY (ARRAY(SELECT target.id FROM target))
    RETURNING job.*
)
INSERT INTO awa.scheduled_jobs (
    id, kind, queue, args, state, priority, attempt, max_attempts, run_at, heartbeat_at, deadline_at,
    attempted_at, finalized_at, created_at, errors, metadata, tags, unique_key, unique_states,
    run_lease, progress, result, worker
)
SELECT
    moved.id, moved.kind, moved.queue, moved.args, 'scheduled', moved.priority, moved.attempt,
    moved.max_attempts, %(run_at)s::timestamptz, NULL, NULL, moved.attempted_at, NULL,
    moved.created_at, moved.errors, moved.metadata - 'awa:due_at', moved.tags, moved.unique_key,
    moved.unique_states, moved.run_lease, moved.progress, moved.result, moved.worker
FROM moved
RETURNING id, queue
