-- The processes that report themselves, supervisors before their children.
-- Params: cap, stale_after (seconds without a sign of life).
SELECT
    instance.name,
    instance.supervisor,
    instance.hostname,
    instance.pid,
    instance.queues,
    instance.concurrency,
    instance.running_count,
    instance.draining,
    instance.started_at,
    instance.last_seen_at,
    instance.last_seen_at < now() - make_interval(secs => %(stale_after)s::double precision)
FROM awa.runtime_instances AS instance
ORDER BY coalesce(instance.supervisor, instance.name), instance.supervisor IS NOT NULL, instance.name
LIMIT %(cap)s::integer
