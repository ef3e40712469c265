-- Send a notification of our own to our own listener.
-- Params: payload.
SELECT pg_notify('awa_jobs', %(payload)s::text)
