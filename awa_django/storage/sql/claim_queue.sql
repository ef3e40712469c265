-- Claim as claim.sql does, but of one queue alone: planning takes two thirds of that, which counts when a
-- single job has come, and when none has.
-- Params: queue, total, worker, excluded_kinds, timeouts, hold, aging_kinds (see claim).
-- Index: jobs_hot_claim, one ordered scan; the update goes by the places of its rows (ctid).
-- What claim.sql says of its CTEs, sizes, timeouts and ages holds here too. A paused queue leaves no capacity,
-- and the LIMIT refers to it, so that the pages are counted, and the pause is seen, before anything is locked.
WITH before AS MATERIALIZED (
    SELECT
        pg_stat_get_xact_blocks_fetched('awa.jobs_hot_claim'::regclass) AS page_count,
        %(total)s::integer AS capacity
    WHERE NOT EXISTS (
        SELECT FROM awa.queue_meta AS meta
        WHERE meta.queue = %(queue)s::text
          AND meta.paused
          AND (meta.paused_until IS NULL OR meta.paused_until > now())
    )
),
due AS MATERIALIZED (
    SELECT found.tid, found.size
    FROM before
    CROSS JOIN LATERAL (
        SELECT job.ctid AS tid, pg_column_size(job.args) AS size
        FROM awa.jobs_hot AS job
        WHERE job.state = 'available'
          AND job.queue = %(queue)s::text
          AND job.run_at <= now()
          AND job.kind <> ALL (%(excluded_kinds)s::text[])
        ORDER BY job.priority, job.run_at, job.id
        LIMIT before.capacity
        FOR UPDATE SKIP LOCKED
    ) AS found
),
slot AS (
    SELECT chosen.tid
    FROM (
        SELECT due.tid, due.size, sum(due.size) OVER (ROWS UNBOUNDED PRECEDING) AS size_so_far
        FROM due
    ) AS chosen
    WHERE chosen.size_so_far - chosen.size < 8388608
),
claimed AS (
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
    WHERE job.ctid = ANY (ARRAY(SELECT slot.tid FROM slot))
    RETURNING job.id, job.run_lease, job.kind, job.queue, job.attempt, job.max_attempts,
        job.args, job.metadata, job.progress, job.priority, job.run_at
)
SELECT
    claimed.id,
    claimed.run_lease,
    claimed.kind,
    claimed.queue,
    claimed.attempt,
    claimed.max_attempts,
    CASE WHEN CASE
        WHEN pg_column_compression(claimed.args) IS NULL THEN pg_column_size(claimed.args) <= 32768
        ELSE pg_column_size(claimed.args) <= 8192
            AND octet_length(claimed.args::text) <= 32768
    END THEN claimed.args::text END,
    CASE
        WHEN claimed.metadata = '{}' AND claimed.kind <> ALL (%(aging_kinds)s::text[]) THEN NULL
        WHEN claimed.metadata ? 'awa:max_age' OR claimed.kind = ANY (%(aging_kinds)s::text[]) THEN (
            claimed.metadata || jsonb_build_object('awa:age', extract(epoch FROM now()) - CASE
                WHEN claimed.attempt > 1 AND jsonb_typeof(claimed.metadata -> 'awa:due_at') = 'number'
                    THEN least(greatest((claimed.metadata -> 'awa:due_at')::numeric, -1e12), 1e12)
                ELSE extract(epoch FROM claimed.run_at)
            END)
        )::text
        ELSE claimed.metadata::text
    END,
    claimed.progress::text,
    (SELECT pg_stat_get_xact_blocks_fetched('awa.jobs_hot_claim'::regclass) - before.page_count FROM before)
FROM claimed
ORDER BY claimed.priority, claimed.run_at, claimed.id
