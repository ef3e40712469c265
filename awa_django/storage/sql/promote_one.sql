-- Move one due row to the hot table, in a batch that cannot be moved as a whole; returns its queue.
-- Params: job_id.
-- Index: scheduled_jobs_pkey.
WITH gone AS (
    DELETE FROM awa.scheduled_jobs AS job
    WHERE job.id = %(job_id)s::bigint
      AND job.run_at <= now()
    RETURNING job.*
)
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
