-- The clock; when the next deferred row is due, null when there is none; and how many pages of the index
-- were read: walked over, where a long snapshot keeps dead entries.
-- Params: since (instant from which to look, see plan_in_order.sql; or null: from the beginning).
-- Index: scheduled_jobs_due. It reads `state`, which is always one of these two, so that no other index
-- holds all it needs: with misleading statistics it would sort one of those instead.
WITH before AS MATERIALIZED (
    SELECT pg_stat_get_xact_blocks_fetched('awa.scheduled_jobs_due'::regclass) AS page_count
)
SELECT
    clock_timestamp(),
    following.run_at,
    pg_stat_get_xact_blocks_fetched('awa.scheduled_jobs_due'::regclass) - before.page_count
FROM before
LEFT JOIN LATERAL (
    SELECT job.run_at
    FROM awa.scheduled_jobs AS job
    WHERE job.state IN ('scheduled', 'retryable')
      AND (%(since)s::timestamptz IS NULL OR job.run_at >= %(since)s::timestamptz)
    ORDER BY job.run_at, job.id
    LIMIT 1
) AS following ON true
