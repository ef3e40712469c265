-- One job, wherever it is, with all that decides whether it is promoted and claimed, but for the other
-- jobs and the workers of its queue (why_queue).
-- Params: job_id.
-- Index: jobs_hot_pkey, scheduled_jobs_pkey, idx_awa_jobs_unique, and the keys of the small tables.
-- A row that an open transaction has locked or changed bears that one's number in xmax: the claim and the
-- promotion skip it. (Several lockers share a number of another kind, which is not looked up.)
WITH job AS MATERIALIZED (
    SELECT
        hot.id, hot.kind, hot.queue, hot.state, hot.priority, hot.attempt, hot.max_attempts, hot.run_at,
        hot.attempted_at, hot.heartbeat_at, hot.deadline_at, hot.finalized_at, hot.worker, hot.run_lease,
        hot.unique_key, hot.unique_states, hot.args, hot.metadata, hot.xmax AS locker,
        hot.errors[array_upper(hot.errors, 1)] AS newest
    FROM awa.jobs_hot AS hot
    WHERE hot.id = %(job_id)s::bigint
    UNION ALL
    SELECT
        deferred.id, deferred.kind, deferred.queue, deferred.state, deferred.priority, deferred.attempt,
        deferred.max_attempts, deferred.run_at, deferred.attempted_at, deferred.heartbeat_at,
        deferred.deadline_at, deferred.finalized_at, deferred.worker, deferred.run_lease,
        deferred.unique_key, deferred.unique_states, deferred.args, deferred.metadata, deferred.xmax,
        deferred.errors[array_upper(deferred.errors, 1)]
    FROM awa.scheduled_jobs AS deferred
    WHERE deferred.id = %(job_id)s::bigint
)
SELECT
    now(),
    job.id,
    job.kind,
    job.queue,
    job.state::text,
    job.priority,
    job.attempt,
    job.max_attempts,
    job.run_at,
    job.attempted_at,
    job.heartbeat_at,
    job.deadline_at,
    job.finalized_at,
    job.worker,
    job.run_lease,
    coalesce(get_bit(job.unique_states, 1) = 1, false),
    (SELECT claim.job_id FROM awa.job_unique_claims AS claim WHERE claim.unique_key = job.unique_key),
    left(job.metadata #>> '{awa:unknown_kind,count}', 40),
    left(job.metadata ->> 'awa:max_age', 40),
    left(job.metadata ->> 'awa:due_at', 40),
    left(job.newest ->> 'outcome', 40),
    left(job.newest ->> 'at', 40),
    left(job.newest ->> 'class', 200),
    left(job.newest ->> 'error', 20000),
    left(coalesce(job.newest ->> 'by', job.newest ->> 'worker'), 200),
    CASE WHEN job.newest IS NOT NULL THEN left(job.args::text, 20000) END,
    (job.metadata -> 'awa:secret')::text,
    (
        SELECT kind.queue IS NOT NULL
        FROM awa.job_kinds AS kind
        WHERE kind.kind = job.kind
    ),
    coalesce(pause.paused AND (pause.paused_until IS NULL OR pause.paused_until > now()), false),
    CASE WHEN isfinite(pause.paused_at) THEN pause.paused_at END,
    pause.paused_by,
    CASE WHEN isfinite(pause.paused_until) THEN pause.paused_until END,
    ARRAY(SELECT leader.duty FROM awa.leaders AS leader WHERE leader.holder IS NOT NULL AND leader.expires_at > now()),
    locker.pid,
    locker.application_name
FROM job
LEFT JOIN awa.queue_meta AS pause ON pause.queue = job.queue
LEFT JOIN LATERAL (
    SELECT held.pid, session.application_name
    FROM pg_locks AS held
    LEFT JOIN pg_stat_activity AS session ON session.pid = held.pid
    WHERE job.locker <> '0'::xid
      AND held.locktype = 'transactionid'
      AND held.transactionid = job.locker
      AND held.granted
      AND held.pid <> pg_backend_pid()
    LIMIT 1
) AS locker ON true
