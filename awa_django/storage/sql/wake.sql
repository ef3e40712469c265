-- Wake the workers that wait for one of the queues; whether anybody did.
-- Params: queues.
SELECT awa.wake(%(queues)s::text[])
