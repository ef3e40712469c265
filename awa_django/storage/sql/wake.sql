-- Wake the workers that wait for one of the queues; whether anybody did, and which process of the server
-- says so.
-- Params: queues.
SELECT awa.wake(%(queues)s::text[]), pg_backend_pid()
