-- Rollups that have counted below zero.
WITH found (subject) AS (
    SELECT format('%%s %%s %%s', stat.minute, stat.queue, stat.kind)
    FROM awa.queue_stats AS stat
    WHERE least(stat.completed_count, stat.retried_count, stat.failed_count, stat.cancelled_count) < 0
       OR least(stat.wait_seconds, stat.run_seconds) < 0
       OR 0 > ANY (stat.wait_histogram || stat.run_histogram)
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
