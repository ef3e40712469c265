-- The ended runs of the last minutes, summed three times: by minute, by queue and by kind (the other two
-- are null in a row), and how many rollups were read. Queues have no histograms.
-- Params: minutes, cap (rollups at most, the newest).
-- Index: queue_stats_pkey.
WITH recent AS MATERIALIZED (
    SELECT stat.*
    FROM awa.queue_stats AS stat
    WHERE stat.minute > date_trunc('minute', now()) - make_interval(mins => %(minutes)s::integer)
    ORDER BY stat.minute DESC, stat.queue DESC, stat.kind DESC
    LIMIT %(cap)s::integer
),
total AS (
    SELECT
        recent.minute,
        recent.queue,
        recent.kind,
        sum(recent.completed_count)::bigint AS completed_count,
        sum(recent.retried_count)::bigint AS retried_count,
        sum(recent.failed_count)::bigint AS failed_count,
        sum(recent.cancelled_count)::bigint AS cancelled_count
    FROM recent
    GROUP BY GROUPING SETS ((recent.minute), (recent.queue), (recent.kind))
),
wait AS (
    SELECT each.minute, each.kind, array_agg(each.count ORDER BY each.place) AS histogram
    FROM (
        SELECT recent.minute, recent.kind, bucket.place, sum(bucket.count)::bigint AS count
        FROM recent
        CROSS JOIN LATERAL unnest(recent.wait_histogram) WITH ORDINALITY AS bucket (count, place)
        GROUP BY GROUPING SETS ((recent.minute, bucket.place), (recent.kind, bucket.place))
    ) AS each
    GROUP BY each.minute, each.kind
),
run AS (
    SELECT each.minute, each.kind, array_agg(each.count ORDER BY each.place) AS histogram
    FROM (
        SELECT recent.minute, recent.kind, bucket.place, sum(bucket.count)::bigint AS count
        FROM recent
        CROSS JOIN LATERAL unnest(recent.run_histogram) WITH ORDINALITY AS bucket (count, place)
        GROUP BY GROUPING SETS ((recent.minute, bucket.place), (recent.kind, bucket.place))
    ) AS each
    GROUP BY each.minute, each.kind
)
SELECT
    total.minute,
    total.queue,
    total.kind,
    total.completed_count,
    total.retried_count,
    total.failed_count,
    total.cancelled_count,
    wait.histogram,
    run.histogram,
    (SELECT count(*) FROM recent)
FROM total
LEFT JOIN wait
    ON coalesce(wait.minute, '-infinity') = coalesce(total.minute, '-infinity')
    AND coalesce(wait.kind, '') = coalesce(total.kind, '')
LEFT JOIN run
    ON coalesce(run.minute, '-infinity') = coalesce(total.minute, '-infinity')
    AND coalesce(run.kind, '') = coalesce(total.kind, '')
