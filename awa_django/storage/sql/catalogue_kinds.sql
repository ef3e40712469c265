-- Remember the kinds that workers serve, for the choices of the admin.
-- Params: kinds, queues (parallel arrays).
INSERT INTO awa.job_kinds AS known (kind, queue)
SELECT entry.kind, entry.queue
FROM unnest(%(kinds)s::text[], %(queues)s::text[]) AS entry (kind, queue)
ORDER BY entry.kind
ON CONFLICT (kind) DO UPDATE
SET queue = excluded.queue,
    last_seen_at = now()
