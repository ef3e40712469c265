-- Delete totals of pairs that ended no run for as long as rollups are kept, down to how many may stay.
-- Params: keep (how many may stay), batch.
-- A limit of 0 reads no rollup: they are read only where there are too many totals, as names made of data make.
DELETE FROM awa.queue_totals AS total
WHERE total.ctid = ANY (ARRAY(
    SELECT unused.ctid
    FROM awa.queue_totals AS unused
    WHERE NOT EXISTS (
        SELECT FROM awa.queue_stats AS stat WHERE stat.queue = unused.queue AND stat.kind = unused.kind
    )
    LIMIT (
        SELECT greatest(least(count(*) - %(keep)s::integer, %(batch)s::integer), 0)
        FROM awa.queue_totals
    )
))
