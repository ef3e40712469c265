-- End a deferred job that cannot become available (another job holds its key) as cancelled.
-- Params: job_id, entry (the error entry; `at` is added here).
-- Index: scheduled_jobs_pkey.
-- The entry names no lease: it is about no run, and the last one may have an entry of its own.
-- The mask loses the bit of `cancelled`: the other job may hold the key. Errors of more
-- than one dimension, to which nothing can be added, become one list.
WITH gone AS (
    DELETE FROM awa.scheduled_jobs AS job
    WHERE job.id = %(job_id)s::bigint
    RETURNING job.*
)
INSERT INTO awa.jobs_hot (
    id, kind, queue, args, state, priority, attempt, max_attempts, run_at, heartbeat_at, deadline_at,
    attempted_at, finalized_at, created_at, errors, metadata, tags, unique_key, unique_states, run_lease,
    progress, result, worker
)
SELECT
    gone.id, gone.kind, gone.queue, gone.args, 'cancelled', gone.priority, gone.attempt, gone.max_attempts,
    gone.run_at, NULL, NULL,
    gone.attempted_at, now(), gone.created_at,
    ARRAY(SELECT unnest(gone.errors)) || (%(entry)s::jsonb || jsonb_build_object('at', now(), 'attempt', gone.attempt)),
    gone.metadata, gone.tags, gone.unique_key,
    set_bit(gone.unique_states, 6, 0), gone.run_lease,
    gone.progress, gone.result, gone.worker
FROM gone
RETURNING id
