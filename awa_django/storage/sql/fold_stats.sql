-- Fold up to a batch of deltas into the rollups; returns how many.
-- Params: batch.
-- Two leaders fold different rows (SKIP LOCKED) and touch the rollups in the same order.
WITH taken AS (
    DELETE FROM awa.queue_stats_deltas AS delta
    WHERE delta.ctid = ANY (ARRAY(
        SELECT waiting.ctid
        FROM awa.queue_stats_deltas AS waiting
        LIMIT %(batch)s::integer
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING delta.*
),
folded AS (
    INSERT INTO awa.queue_stats AS stat (
        minute, queue, kind, completed_count, retried_count, failed_count, cancelled_count,
        wait_seconds, run_seconds
    )
    SELECT
        taken.minute, taken.queue, taken.kind, sum(taken.completed_count), sum(taken.retried_count),
        sum(taken.failed_count), sum(taken.cancelled_count), sum(taken.wait_seconds), sum(taken.run_seconds)
    FROM taken
    GROUP BY taken.minute, taken.queue, taken.kind
    ORDER BY taken.minute, taken.queue, taken.kind
    ON CONFLICT (minute, queue, kind) DO UPDATE
    SET completed_count = stat.completed_count + excluded.completed_count,
        retried_count = stat.retried_count + excluded.retried_count,
        failed_count = stat.failed_count + excluded.failed_count,
        cancelled_count = stat.cancelled_count + excluded.cancelled_count,
        wait_seconds = stat.wait_seconds + excluded.wait_seconds,
        run_seconds = stat.run_seconds + excluded.run_seconds
)
SELECT count(*) FROM taken
