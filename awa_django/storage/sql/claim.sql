-- Claim due jobs of several queues at once: available -> running under a new lease, best first.
-- Params: queues, limits (parallel arrays: how many of each queue at most), total (of all queues),
--   share (how many of each queue before any gets more), worker, excluded_kinds (kinds to leave alone),
--   timeouts (JSON object: kind -> seconds),
--   hold (seconds a claimed job may wait in the worker before it starts), aging_kinds (those with a max_age).
-- Index: jobs_hot_claim, one ordered scan a queue; the update goes by the places of its rows (ctid).
-- Each queue gives its share first. Jobs that came in together then go together, out of the same pages:
-- a whole claim from one of 64 queues cleans as many pages as it has jobs (server time 1.45 of that with
-- one queue, now 1.05). Only when there are too few does the rest come from those that have more.
-- The queues are asked in the order given: ordered and MATERIALIZED, as the join with the pauses keeps none.
-- The CTEs are MATERIALIZED so that their LIMITs bound what is locked; the update goes by an array (joined to
-- the CTE it scans the table: 123 ms instead of 4 for 100 jobs). A row that moved right before it was locked
-- is at another place than this statement's snapshot knows, and is left to the next claim.
-- Each row says how many pages of the claim index were read: walked over, where its entries are dead.
-- A timeout of the job's own counts when it is above 0 (rounded: 1e-400 fits no float).
-- A job with a max_age brings its age along: from when it was due, before a retry first (see defer), to now.
-- A row whose attempts are used up (raw SQL) is claimed too, and failed by the worker unstarted.
-- It stops at 8 MB of args, which every update of a row reads for the table's CHECK (0.6 ms a megabyte).
-- Args beyond 32 kB stay behind (NULL; see claimed_args): a child may hold 4,000 jobs. Their size is
-- known without reading them, but for few compressed bytes, which may be many.
WITH before AS MATERIALIZED (
    SELECT pg_stat_get_xact_blocks_fetched('awa.jobs_hot_claim'::regclass) AS page_count
),
wanted AS MATERIALIZED (
    SELECT entry.queue, entry.capacity
    FROM unnest(%(queues)s::text[], %(limits)s::integer[]) WITH ORDINALITY AS entry (queue, capacity, turn)
    CROSS JOIN before
    WHERE NOT EXISTS (
        SELECT FROM awa.queue_meta AS meta
        WHERE meta.queue = entry.queue
          AND meta.paused
          AND (meta.paused_until IS NULL OR meta.paused_until > now())
    )
    ORDER BY entry.turn
),
shared AS MATERIALIZED (
    SELECT wanted.queue, due.tid, due.size
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT job.ctid AS tid, pg_column_size(job.args) AS size
        FROM awa.jobs_hot AS job
        WHERE job.state = 'available'
          AND job.queue = wanted.queue
          AND job.run_at <= now()
          AND job.kind <> ALL (%(excluded_kinds)s::text[])
        ORDER BY job.priority, job.run_at, job.id
        LIMIT least(wanted.capacity, %(share)s::integer)
        FOR UPDATE SKIP LOCKED
    ) AS due
    LIMIT %(total)s::integer
),
rest AS MATERIALIZED (
    SELECT due.tid, due.size
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT job.ctid AS tid, pg_column_size(job.args) AS size
        FROM awa.jobs_hot AS job
        WHERE job.state = 'available'
          AND job.queue = wanted.queue
          AND job.run_at <= now()
          AND job.kind <> ALL (%(excluded_kinds)s::text[])
        ORDER BY job.priority, job.run_at, job.id
        OFFSET %(share)s::integer
        LIMIT greatest(wanted.capacity - %(share)s::integer, 0)
        FOR UPDATE SKIP LOCKED
    ) AS due
    WHERE wanted.queue = ANY (ARRAY(
        SELECT shared.queue FROM shared GROUP BY shared.queue HAVING count(*) = %(share)s::integer
    ))
    LIMIT %(total)s::integer - (SELECT count(*) FROM shared)
),
slot AS (
    SELECT chosen.tid
    FROM (
        SELECT due.tid, due.size, sum(due.size) OVER (ROWS UNBOUNDED PRECEDING) AS size_so_far
        FROM (
            SELECT shared.tid, shared.size FROM shared UNION ALL SELECT rest.tid, rest.size FROM rest
        ) AS due
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
