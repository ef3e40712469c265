-- How many connections the server takes from ordinary roles, how many are open, how many the live workers may
-- open (docs/connections.md says how that is counted), how full the queue of notifications is (0 to 1), and how
-- many bytes the table of hot jobs has.
-- Params: seen_within (seconds: who lives).
SELECT
    current_setting('max_connections')::integer
        - current_setting('superuser_reserved_connections')::integer
        - coalesce(current_setting('reserved_connections', true)::integer, 0),  -- since PostgreSQL 16
    (SELECT count(*) FROM pg_stat_activity AS session WHERE session.datid IS NOT NULL),
    (
        SELECT coalesce(sum(CASE WHEN instance.supervisor IS NULL THEN 10 ELSE 3 + instance.concurrency END), 0)
        FROM awa.runtime_instances AS instance
        WHERE instance.last_seen_at > now() - make_interval(secs => %(seen_within)s::double precision)
    ),
    pg_notification_queue_usage(),
    pg_relation_size('awa.jobs_hot')
