-- How many pairs of queue and kind have totals.
-- Params: limit (the highest count).
-- Index: queue_totals_pkey, or the whole of its table up to the limit.
SELECT count(*)
FROM (SELECT FROM awa.queue_totals AS total LIMIT %(limit)s::integer) AS capped
