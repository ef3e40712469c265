-- Fold up to a batch of deltas into the rollups; returns how many.
-- Params: batch.
-- Two leaders fold different rows (SKIP LOCKED) and touch the rollups in the same order.
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
summed AS (
    SELECT
        taken.minute, taken.queue, taken.kind, sum(taken.completed_count) AS completed_count,
        sum(taken.retried_count) AS retried_count, sum(taken.failed_count) AS failed_count,
        sum(taken.cancelled_count) AS cancelled_count, sum(taken.wait_seconds) AS wait_seconds,
        sum(taken.run_seconds) AS run_seconds, max(taken.wait_bucket) AS last_wait,
        max(taken.run_bucket) AS last_run, array_agg(taken.wait_bucket) AS wait_buckets,
        array_agg(taken.run_bucket) AS run_buckets, array_agg(taken.ended_count) AS ended_counts
    FROM taken
    GROUP BY taken.minute, taken.queue, taken.kind
),
folded AS (
    INSERT INTO awa.queue_stats AS stat (
        minute, queue, kind, completed_count, retried_count, failed_count, cancelled_count,
        wait_seconds, run_seconds, wait_histogram, run_histogram
    )
    SELECT
        summed.minute, summed.queue, summed.kind, summed.completed_count, summed.retried_count,
        summed.failed_count, summed.cancelled_count, summed.wait_seconds, summed.run_seconds,
        ARRAY(
            SELECT coalesce(sum(delta.ended_count), 0)::integer
            FROM generate_series(0, summed.last_wait) AS place (bucket)
            LEFT JOIN unnest(summed.wait_buckets, summed.ended_counts) AS delta (bucket, ended_count)
                ON delta.bucket = place.bucket
            GROUP BY place.bucket
            ORDER BY place.bucket
        ),
        ARRAY(
            SELECT coalesce(sum(delta.ended_count), 0)::integer
            FROM generate_series(0, summed.last_run) AS place (bucket)
            LEFT JOIN unnest(summed.run_buckets, summed.ended_counts) AS delta (bucket, ended_count)
                ON delta.bucket = place.bucket
            GROUP BY place.bucket
            ORDER BY place.bucket
        )
    FROM summed
    ORDER BY summed.minute, summed.queue, summed.kind
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
)
SELECT count(*) FROM taken
