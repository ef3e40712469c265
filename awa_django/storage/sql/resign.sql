-- Give up the leases of a holder, so that a successor need not wait for their expiry.
-- Params: holder.
UPDATE awa.leaders AS leader
SET holder = NULL,
    expires_at = now()
WHERE leader.holder = %(holder)s::text
