-- The worker is busy: producers need not notify it. Rows of the dead go with it.
-- Params: worker.
DELETE FROM awa.waiters AS waiter
WHERE waiter.worker = %(worker)s::text
   OR waiter.expires_at < now() - interval '1 minute'
