-- Insert one job that may run now; returns its id, whether somebody waits to be woken for it, and the
-- process of the server that answers. The plainest statement there is: it is the price of every enqueue,
-- so what can be a column's default is one, and the look for who waits is no statement of its own.
-- Params: kind, queue, args (JSON text), priority, max_attempts.
INSERT INTO awa.jobs_hot (kind, queue, args, priority, max_attempts)
VALUES (
    %(kind)s::text,
    %(queue)s::text,
    %(args)s::jsonb,
    %(priority)s::smallint,
    %(max_attempts)s::smallint
)
RETURNING
    id,
    EXISTS (
        SELECT FROM awa.waiters AS waiter
        WHERE waiter.expires_at > now() AND %(queue)s::text = ANY (waiter.queues)
    ),
    pg_backend_pid()
