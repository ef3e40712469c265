-- Tables with many dead rows, and more than a fifth of the live ones, that nothing has vacuumed for long.
-- Params: dead_at_least (rows), unvacuumed_for (seconds).
WITH found (subject) AS (
    SELECT format(
        'awa.%%s: %%s dead rows beside %%s live ones, last vacuum %%s',
        stat.relname, stat.n_dead_tup, stat.n_live_tup, coalesce(last.vacuum::text, 'never')
    )
    FROM pg_stat_all_tables AS stat
    CROSS JOIN LATERAL (SELECT greatest(stat.last_vacuum, stat.last_autovacuum) AS vacuum) AS last
    WHERE stat.schemaname = 'awa'
      AND stat.n_dead_tup >= %(dead_at_least)s::bigint
      AND stat.n_dead_tup >= stat.n_live_tup / 5
      AND (
          last.vacuum IS NULL
          OR last.vacuum < now() - make_interval(secs => %(unvacuumed_for)s::double precision)
      )
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject FROM found ORDER BY found.subject LIMIT 20)
