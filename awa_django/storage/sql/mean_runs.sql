-- Mean seconds of a run in each queue: of the last minutes, or where none ended in them since the totals began.
-- Params: minutes.
-- Index: queue_stats_pkey; the totals have one row a queue and kind.
WITH ever AS (
    SELECT
        total.queue,
        sum(total.run_seconds) AS seconds,
        sum(total.completed_count + total.retried_count + total.failed_count + total.cancelled_count) AS count
    FROM awa.queue_totals AS total
    GROUP BY total.queue
),
recent AS (
    SELECT
        stat.queue,
        sum(stat.run_seconds) AS seconds,
        sum(stat.completed_count + stat.retried_count + stat.failed_count + stat.cancelled_count) AS count
    FROM awa.queue_stats AS stat
    WHERE stat.minute >= date_trunc('minute', now()) - make_interval(mins => %(minutes)s::integer)
    GROUP BY stat.queue
)
SELECT
    ever.queue,
    coalesce(recent.seconds / nullif(recent.count, 0), ever.seconds / ever.count)::double precision
FROM ever
LEFT JOIN recent ON recent.queue = ever.queue
WHERE ever.count > 0
