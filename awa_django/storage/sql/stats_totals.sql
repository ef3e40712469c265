-- The ended runs of each queue and kind since the totals began.
-- Params: limit.
-- Index: queue_totals_pkey; the table has one row a queue and kind.
SELECT
    total.queue,
    total.kind,
    total.completed_count,
    total.retried_count,
    total.failed_count,
    total.cancelled_count,
    total.wait_seconds,
    total.run_seconds,
    total.wait_histogram,
    total.run_histogram
FROM awa.queue_totals AS total
ORDER BY total.queue, total.kind
LIMIT %(limit)s::integer
