-- The queues that living workers serve.
-- Params: seen_within (seconds since a worker was last seen).
SELECT DISTINCT unnest(instance.queues)
FROM awa.runtime_instances AS instance
WHERE instance.last_seen_at > now() - make_interval(secs => %(seen_within)s::double precision)
