-- How many deferred jobs are due in each span from now, counted to a cap each; beyond it, how many there
-- are by what ANALYZE found out (null where nothing is known); and when the first is due.
-- Params: starts, ends (parallel arrays: seconds from now; null is without end), cap.
-- Index: scheduled_jobs_due, and that alone where VACUUM has been: rows are named by pairs of (run_at, id),
-- the order of no other index.
WITH known AS MATERIALIZED (
    SELECT
        relation.reltuples AS row_count,
        stat.most_common_freqs AS shares,
        stat.most_common_vals::text::timestamptz[] AS instants,
        stat.histogram_bounds::text::timestamptz[] AS bounds
    FROM pg_class AS relation
    JOIN pg_stats AS stat
        ON stat.schemaname = 'awa' AND stat.tablename = 'scheduled_jobs' AND stat.attname = 'run_at'
    WHERE relation.oid = 'awa.scheduled_jobs'::regclass AND relation.reltuples > 0
),
span AS (
    SELECT
        each.place,
        coalesce(now() + make_interval(secs => each.start), '-infinity') AS start,
        coalesce(now() + make_interval(secs => each.finish), 'infinity') AS finish
    FROM unnest(
        %(starts)s::double precision[],
        %(ends)s::double precision[]
    ) WITH ORDINALITY AS each (start, finish, place)
)
SELECT
    counted.count,
    counted.first_at,
    CASE WHEN counted.count >= %(cap)s::integer THEN (
        -- The instants that are often met have their share of the rows; the others are spread evenly
        -- between the bounds.
        SELECT
            known.row_count * (
                coalesce(often.within, 0)
                + (1 - coalesce(often.whole, 0)) * coalesce(rest.within / nullif(rest.whole, 0), 0)
            )
        FROM known
        CROSS JOIN LATERAL (
            SELECT
                sum(common.share) FILTER (
                    WHERE common.instant >= span.start AND common.instant < span.finish
                ) AS within,
                sum(common.share) AS whole
            FROM unnest(known.shares, known.instants) AS common (share, instant)
        ) AS often
        CROSS JOIN LATERAL (
            SELECT
                count(*) FILTER (WHERE bound.instant >= span.start AND bound.instant < span.finish)::float8
                    AS within,
                count(*) AS whole
            FROM unnest(known.bounds) AS bound (instant)
        ) AS rest
    )::bigint END
FROM span
CROSS JOIN LATERAL (
    SELECT count(*) AS count, min(capped.run_at) AS first_at
    FROM (
        SELECT job.run_at
        FROM awa.scheduled_jobs AS job
        WHERE (job.run_at, job.id) > (span.start, 0::bigint)
          AND (job.run_at, job.id) < (span.finish, 0::bigint)
        ORDER BY job.run_at, job.id
        LIMIT %(cap)s::integer
    ) AS capped
) AS counted
ORDER BY span.place
