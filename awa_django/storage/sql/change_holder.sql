-- Give the job that holds a unique key other args, or another due instant, or both, while it waits to run;
-- one that runs or has ended is left. Returns the holder, its state, whether it was changed, and whether it
-- moved on while this waited for its row: then nothing was changed, and somebody must look again.
-- No row comes back when nobody holds the key.
-- Params: unique_key; args (JSON text; null: they stay); reschedules, and then run_at, or delay from now,
--   or both null: now.
-- Index: idx_awa_jobs_unique, jobs_hot_pkey, scheduled_jobs_pkey.
-- Of a job with a max_age that waits for a retry the age counts anew from the new instant (see defer).
-- The claim is read and not locked: who ends a job locks its row first and its claim second, so the other
-- order would deadlock with them. An available job that would be due now is due already, and keeps its
-- place in the queue; a deferred one is left to promotion.
WITH due AS MATERIALIZED (
    SELECT
        asked.run_at,
        %(reschedules)s::boolean AND asked.run_at > now() AS puts_off
    FROM (
        SELECT coalesce(%(run_at)s::timestamptz, now() + %(delay)s::interval, now())
    ) AS asked (run_at)
),
holder AS MATERIALIZED (
    SELECT
        claim.job_id AS id,
        coalesce(
            (SELECT job.state FROM awa.jobs_hot AS job WHERE job.id = claim.job_id),
            (SELECT job.state FROM awa.scheduled_jobs AS job WHERE job.id = claim.job_id)
        ) AS state
    FROM awa.job_unique_claims AS claim
    WHERE claim.unique_key = %(unique_key)s::bytea
),
replaced AS (
    UPDATE awa.jobs_hot AS job
    SET args = %(args)s::jsonb
    WHERE job.id = (SELECT holder.id FROM holder WHERE holder.state = 'available')
      AND job.state = 'available'
      AND %(args)s::jsonb IS NOT NULL
      AND NOT (SELECT due.puts_off FROM due)
    RETURNING job.id
),
put_off AS (
    DELETE FROM awa.jobs_hot AS job
    WHERE job.id = (SELECT holder.id FROM holder WHERE holder.state = 'available')
      AND job.state = 'available'
      AND (SELECT due.puts_off FROM due)
    RETURNING job.*
),
moved AS (
    INSERT INTO awa.scheduled_jobs (
        id, kind, queue, args, state, priority, attempt, max_attempts, run_at, heartbeat_at, deadline_at,
        attempted_at, finalized_at, created_at, errors, metadata, tags, unique_key, unique_states,
        run_lease, progress, result, worker
    )
    SELECT
        put_off.id, put_off.kind, put_off.queue, coalesce(%(args)s::jsonb, put_off.args), 'scheduled',
        put_off.priority, put_off.attempt, put_off.max_attempts, due.run_at, NULL, NULL,
        put_off.attempted_at, NULL, put_off.created_at, put_off.errors, put_off.metadata - 'awa:due_at', put_off.tags,
        put_off.unique_key, put_off.unique_states, put_off.run_lease, put_off.progress, put_off.result,
        put_off.worker
    FROM put_off, due
    RETURNING id
),
changed_deferred AS (
    UPDATE awa.scheduled_jobs AS job
    SET args = coalesce(%(args)s::jsonb, job.args),
        run_at = CASE WHEN %(reschedules)s::boolean THEN due.run_at ELSE job.run_at END,
        metadata = CASE WHEN %(reschedules)s::boolean THEN job.metadata - 'awa:due_at' ELSE job.metadata END
    FROM due
    WHERE job.id = (SELECT holder.id FROM holder WHERE holder.state IN ('scheduled', 'retryable'))
    RETURNING job.id
),
outcome AS (
    SELECT
        EXISTS (SELECT FROM replaced) OR EXISTS (SELECT FROM moved) OR EXISTS (SELECT FROM changed_deferred)
            AS is_changed
)
SELECT
    holder.id,
    holder.state::text,
    outcome.is_changed,
    NOT outcome.is_changed
        AND (
            holder.state IN ('scheduled', 'retryable')
            OR (holder.state = 'available' AND (%(args)s::jsonb IS NOT NULL OR due.puts_off))
        ) IS TRUE AS has_moved_on
FROM holder, due, outcome
