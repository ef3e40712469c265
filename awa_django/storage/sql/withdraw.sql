-- Remove processes that ended, and those not seen for a long time.
-- Params: names, unseen_for (seconds).
DELETE FROM awa.runtime_instances AS instance
WHERE instance.name = ANY (%(names)s::text[])
   OR instance.last_seen_at < now() - make_interval(secs => %(unseen_for)s::double precision)
