-- Insert one job that may run now; returns its id. The plainest statement there is: it is the
-- price of every enqueue, so what can be a column's default is one.
-- Params: kind, queue, args (JSON text), priority, max_attempts.
INSERT INTO awa.jobs_hot (kind, queue, args, priority, max_attempts)
VALUES (
    %(kind)s::text,
    %(queue)s::text,
    %(args)s::jsonb,
    %(priority)s::smallint,
    %(max_attempts)s::smallint
)
RETURNING id
