-- Let claims from a queue go on; no row when it was not paused.
-- Params: queue.
-- Index: queue_meta_pkey.
UPDATE awa.queue_meta AS meta
SET paused = false,
    paused_at = NULL,
    paused_by = NULL,
    paused_until = NULL
WHERE meta.queue = %(queue)s::text
  AND meta.paused
RETURNING meta.queue
