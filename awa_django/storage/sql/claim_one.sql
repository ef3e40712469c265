-- Claim one job by its id, in a batch that cannot be claimed as a whole.
-- Params: job_id, worker, timeouts, hold, aging_kinds (see claim).
-- Index: jobs_hot_pkey (`state::text` hides that of available rows, in which the id stands last).
UPDATE awa.jobs_hot AS job
SET state = 'running',
    attempt = least(job.attempt, job.max_attempts) + 1,
    run_lease = job.run_lease + 1,
    attempted_at = now(),
    heartbeat_at = now(),
    deadline_at = now() + make_interval(secs => %(hold)s::double precision + coalesce(
        CASE WHEN jsonb_typeof(job.metadata -> 'awa:timeout') = 'number'
            THEN nullif(round(least(greatest((job.metadata -> 'awa:timeout')::numeric, 0), 31536000), 6), 0)
        END::double precision,
        (%(timeouts)s::jsonb ->> job.kind)::double precision
    )),
    worker = %(worker)s::text
WHERE job.id = (
    SELECT due.id
    FROM awa.jobs_hot AS due
    WHERE due.id = %(job_id)s::bigint
      AND due.state::text = 'available'
      AND due.run_at <= now()
      AND NOT EXISTS (
          SELECT FROM awa.queue_meta AS meta
          WHERE meta.queue = due.queue
            AND meta.paused
            AND (meta.paused_until IS NULL OR meta.paused_until > now())
      )
    FOR UPDATE SKIP LOCKED
)
RETURNING
    job.id,
    job.run_lease,
    job.kind,
    job.queue,
    job.attempt,
    job.max_attempts,
    CASE WHEN CASE
        WHEN pg_column_compression(job.args) IS NULL THEN pg_column_size(job.args) <= 32768
        ELSE pg_column_size(job.args) <= 8192
            AND octet_length(job.args::text) <= 32768
    END THEN job.args::text END,
    CASE
        WHEN job.metadata = '{}' AND job.kind <> ALL (%(aging_kinds)s::text[]) THEN NULL
        WHEN job.metadata ? 'awa:max_age' OR job.kind = ANY (%(aging_kinds)s::text[]) THEN (
            job.metadata || jsonb_build_object('awa:age', extract(epoch FROM now()) - CASE
                WHEN job.attempt > 1 AND jsonb_typeof(job.metadata -> 'awa:due_at') = 'number'
                    THEN least(greatest((job.metadata -> 'awa:due_at')::numeric, -1e12), 1e12)
                ELSE extract(epoch FROM job.run_at)
            END)
        )::text
        ELSE job.metadata::text
    END,
    job.progress::text
