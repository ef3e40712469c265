-- Delete rollups of minutes longer ago than they are kept.
-- Params: kept (seconds).
-- Index: queue_stats_pkey.
DELETE FROM awa.queue_stats AS stat
WHERE stat.minute < now() - make_interval(secs => %(kept)s::double precision)
