-- The processes that say they live, each supervisor before its children.
-- Params: limit.
SELECT
    instance.name,
    instance.supervisor,
    instance.hostname,
    instance.pid,
    instance.version,
    instance.queues,
    instance.concurrency,
    instance.running_count,
    instance.draining,
    instance.started_at,
    extract(epoch FROM now() - instance.last_seen_at)::double precision
FROM awa.runtime_instances AS instance
ORDER BY coalesce(instance.supervisor, instance.name), instance.supervisor IS NOT NULL, instance.name
LIMIT %(limit)s::integer
