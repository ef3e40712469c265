-- One job, wherever it is, with JSON as text.
-- Params: job_id.
-- Index: jobs_hot_pkey, scheduled_jobs_pkey.
SELECT
    id,
    kind,
    queue,
    state::text,
    priority,
    attempt,
    max_attempts,
    run_at,
    created_at,
    attempted_at,
    finalized_at,
    args::text,
    to_jsonb(errors)::text,
    metadata::text,
    tags,
    progress::text,
    result::text,
    worker
FROM awa.jobs_hot
WHERE id = %(job_id)s::bigint
UNION ALL
SELECT
    id,
    kind,
    queue,
    state::text,
    priority,
    attempt,
    max_attempts,
    run_at,
    created_at,
    attempted_at,
    finalized_at,
    args::text,
    to_jsonb(errors)::text,
    metadata::text,
    tags,
    progress::text,
    result::text,
    worker
FROM awa.scheduled_jobs
WHERE id = %(job_id)s::bigint
