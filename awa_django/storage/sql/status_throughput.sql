-- Ended runs of the last whole minutes, of several spans: counts, and seconds of wait and of run in all.
-- Params: spans (minutes).
-- Index: queue_stats_pkey.
SELECT
    span.minutes,
    coalesce(sum(stat.completed_count), 0)::bigint,
    coalesce(sum(stat.retried_count), 0)::bigint,
    coalesce(sum(stat.failed_count), 0)::bigint,
    coalesce(sum(stat.cancelled_count), 0)::bigint,
    coalesce(sum(stat.wait_seconds), 0)::double precision,
    coalesce(sum(stat.run_seconds), 0)::double precision
FROM unnest(%(spans)s::integer[]) AS span (minutes)
LEFT JOIN awa.queue_stats AS stat
    ON stat.minute >= date_trunc('minute', now()) - make_interval(mins => span.minutes)
    AND stat.minute < date_trunc('minute', now())
GROUP BY span.minutes
ORDER BY span.minutes
