-- Say that a worker's claimers are idle: producers of these queues will notify until it expires.
-- Params: worker, queues, ttl (seconds).
INSERT INTO awa.waiters AS waiter (worker, queues, expires_at)
VALUES (
    %(worker)s::text,
    %(queues)s::text[],
    now() + make_interval(secs => %(ttl)s::double precision)
)
ON CONFLICT (worker) DO UPDATE
SET queues = excluded.queues,
    expires_at = excluded.expires_at
