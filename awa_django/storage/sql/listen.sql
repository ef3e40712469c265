-- Hear what awa.wake sends: the payload is the queue.
LISTEN awa_jobs
