-- Move due rows from the deferred table to the hot one, earliest first; returns queue, count.
-- Params: batch (rows at most), since (instant from which to look, or null: from the beginning).
-- Index: scheduled_jobs_due for the choice (see plan_in_order.sql); the move goes by ctid, of rows that
-- are locked. By id the planner may read a whole index (queue, run_at, id) while the statistics say that
-- the table is empty.
-- The CTE is MATERIALIZED so that its LIMIT bounds what is locked.
WITH due AS MATERIALIZED (
    SELECT job.ctid
    FROM awa.scheduled_jobs AS job
    WHERE job.run_at <= now()
      AND (%(since)s::timestamptz IS NULL OR job.run_at >= %(since)s::timestamptz)
    ORDER BY job.run_at, job.id
    LIMIT %(batch)s::integer
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM awa.scheduled_jobs AS job
    WHERE job.ctid = ANY (ARRAY(SELECT due.ctid FROM due))
    RETURNING job.*
),
arrived AS (
    INSERT INTO awa.jobs_hot (
        id, kind, queue, args, state, priority, attempt, max_attempts, run_at, heartbeat_at, deadline_at,
        attempted_at, finalized_at, created_at, errors, metadata, tags, unique_key, unique_states, run_lease,
        progress, result, worker
    )
    SELECT
        gone.id, gone.kind, gone.queue, gone.args, 'available', gone.priority, gone.attempt, gone.max_attempts,
        gone.run_at, NULL, NULL,
        gone.attempted_at, NULL, gone.created_at, gone.errors, gone.metadata, gone.tags, gone.unique_key,
        gone.unique_states, gone.run_lease,
        gone.progress, gone.result, gone.worker
    FROM gone
    RETURNING queue
)
SELECT arrived.queue, count(*)
FROM arrived
GROUP BY arrived.queue
