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
histogram AS (
    SELECT
        each.minute,
        each.kind,
        array_agg(each.wait_count ORDER BY each.place) FILTER (WHERE each.wait_count IS NOT NULL) AS waits,
        array_agg(each.run_count ORDER BY each.place) FILTER (WHERE each.run_count IS NOT NULL) AS runs
    FROM (
        SELECT
            recent.minute,
            recent.kind,
            bucket.place,
            sum(bucket.wait_count)::bigint AS wait_count,
            sum(bucket.run_count)::bigint AS run_count
        FROM recent
        -- The shorter one is null where only the other has buckets.
        CROSS JOIN LATERAL unnest(recent.wait_histogram, recent.run_histogram) WITH ORDINALITY
            AS bucket (wait_count, run_count, place)
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
    histogram.waits,
    histogram.runs,
    (SELECT count(*) FROM recent)
FROM total
LEFT JOIN histogram
    ON coalesce(histogram.minute, '-infinity') = coalesce(total.minute, '-infinity')
    AND coalesce(histogram.kind, '') = coalesce(total.kind, '')
    AND total.queue IS NULL
