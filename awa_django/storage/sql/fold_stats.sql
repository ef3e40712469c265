-- Fold up to a batch of deltas into the rollups and the totals; returns how many.
-- Params: batch.
-- Two leaders fold different rows (SKIP LOCKED) and touch the others in the same order.
-- A histogram ends at the last bucket that counts; that of deltas without buckets (old workers') is empty.
WITH taken AS (
    DELETE FROM awa.queue_stats_deltas AS delta
    WHERE delta.ctid = ANY (ARRAY(
        SELECT waiting.ctid
        FROM awa.queue_stats_deltas AS waiting
        LIMIT %(batch)s::integer
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING delta.*, delta.completed_count + delta.retried_count + delta.failed_count + delta.cancelled_count
        AS ended_count
),
-- By minute, queue and kind, and once more by queue and kind: there the minute is null.
summed AS (
    SELECT
        taken.minute, taken.queue, taken.kind, sum(taken.completed_count) AS completed_count,
        sum(taken.retried_count) AS retried_count, sum(taken.failed_count) AS failed_count,
        sum(taken.cancelled_count) AS cancelled_count, sum(taken.wait_seconds) AS wait_seconds,
        sum(taken.run_seconds) AS run_seconds, max(taken.wait_bucket) AS last_wait,
        max(taken.run_bucket) AS last_run, array_agg(taken.wait_bucket) AS wait_buckets,
        array_agg(taken.run_bucket) AS run_buckets, array_agg(taken.ended_count) AS ended_counts
    FROM taken
    GROUP BY GROUPING SETS ((taken.minute, taken.queue, taken.kind), (taken.queue, taken.kind))
),
spread AS MATERIALIZED (
    SELECT
        summed.*,
        ARRAY(
            SELECT coalesce(sum(delta.ended_count), 0)::bigint
            FROM generate_series(0, summed.last_wait) AS place (bucket)
            LEFT JOIN unnest(summed.wait_buckets, summed.ended_counts) AS delta (bucket, ended_count)
                ON delta.bucket = place.bucket
            GROUP BY place.bucket
            ORDER BY place.bucket
        ) AS wait_histogram,
        ARRAY(
            SELECT coalesce(sum(delta.ended_count), 0)::bigint
            FROM generate_series(0, summed.last_run) AS place (bucket)
            LEFT JOIN unnest(summed.run_buckets, summed.ended_counts) AS delta (bucket, ended_count)
                ON delta.bucket = place.bucket
            GROUP BY place.bucket
            ORDER BY place.bucket
        ) AS run_histogram
    FROM summed
),
folded AS (
    INSERT INTO awa.queue_stats AS stat (
        minute, queue, kind, completed_count, retried_count, failed_count, cancelled_count,
        wait_seconds, run_seconds, wait_histogram, run_histogram
    )
    SELECT
        spread.minute, spread.queue, spread.kind, spread.completed_count, spread.retried_count,
        spread.failed_count, spread.cancelled_count, spread.wait_seconds, spread.run_seconds,
        spread.wait_histogram::integer[], spread.run_histogram::integer[]
    FROM spread
    WHERE spread.minute IS NOT NULL
    ORDER BY spread.minute, spread.queue, spread.kind
    ON CONFLICT (minute, queue, kind) DO UPDATE
    SET completed_count = stat.completed_count + excluded.completed_count,
        retried_count = stat.retried_count + excluded.retried_count,
        failed_count = stat.failed_count + excluded.failed_count,
        cancelled_count = stat.cancelled_count + excluded.cancelled_count,
        wait_seconds = stat.wait_seconds + excluded.wait_seconds,
        run_seconds = stat.run_seconds + excluded.run_seconds,
        wait_histogram = ARRAY(
            SELECT coalesce(both_counts.old, 0) + coalesce(both_counts.new, 0)
            FROM unnest(stat.wait_histogram, excluded.wait_histogram)
                WITH ORDINALITY AS both_counts (old, new, place)
            ORDER BY both_counts.place
        ),
        run_histogram = ARRAY(
            SELECT coalesce(both_counts.old, 0) + coalesce(both_counts.new, 0)
            FROM unnest(stat.run_histogram, excluded.run_histogram)
                WITH ORDINALITY AS both_counts (old, new, place)
            ORDER BY both_counts.place
        )
),
totalled AS (
    INSERT INTO awa.queue_totals AS total (
        queue, kind, completed_count, retried_count, failed_count, cancelled_count,
        wait_seconds, run_seconds, wait_histogram, run_histogram
    )
    SELECT
        spread.queue, spread.kind, spread.completed_count, spread.retried_count,
        spread.failed_count, spread.cancelled_count, spread.wait_seconds, spread.run_seconds,
        spread.wait_histogram, spread.run_histogram
    FROM spread
    WHERE spread.minute IS NULL
    ORDER BY spread.queue, spread.kind
    ON CONFLICT (queue, kind) DO UPDATE
    SET completed_count = total.completed_count + excluded.completed_count,
        retried_count = total.retried_count + excluded.retried_count,
        failed_count = total.failed_count + excluded.failed_count,
        cancelled_count = total.cancelled_count + excluded.cancelled_count,
        wait_seconds = total.wait_seconds + excluded.wait_seconds,
        run_seconds = total.run_seconds + excluded.run_seconds,
        wait_histogram = ARRAY(
            SELECT coalesce(both_counts.old, 0) + coalesce(both_counts.new, 0)
            FROM unnest(total.wait_histogram, excluded.wait_histogram)
                WITH ORDINALITY AS both_counts (old, new, place)
            ORDER BY both_counts.place
        ),
        run_histogram = ARRAY(
            SELECT coalesce(both_counts.old, 0) + coalesce(both_counts.new, 0)
            FROM unnest(total.run_histogram, excluded.run_histogram)
                WITH ORDINALITY AS both_counts (old, new, place)
            ORDER BY both_counts.place
        )
)
SELECT count(*) FROM taken
