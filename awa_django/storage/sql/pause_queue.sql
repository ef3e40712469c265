-- Stop claims from a queue; returns the queue when that changed something.
-- Params: queue; paused_by (text or null); paused_until (timestamptz or null: until resumed); shorten (whether a
-- pause that lasts longer may end earlier).
-- Index: queue_meta_pkey.
INSERT INTO awa.queue_meta AS meta (queue, paused, paused_at, paused_by, paused_until)
VALUES (%(queue)s::text, true, now(), %(paused_by)s::text, %(paused_until)s::timestamptz)
ON CONFLICT (queue) DO UPDATE
SET paused = true,
    paused_at = CASE
        WHEN meta.paused AND coalesce(meta.paused_until > now(), true) THEN meta.paused_at
        ELSE now()
    END,
    paused_by = excluded.paused_by,
    paused_until = excluded.paused_until
WHERE NOT meta.paused
   OR meta.paused_until <= now()
   OR meta.paused_until < coalesce(excluded.paused_until, 'infinity')
   OR %(shorten)s::boolean AND meta.paused_until IS DISTINCT FROM excluded.paused_until
RETURNING meta.queue
