-- Take or renew the lease of duties; returns duty, epoch for each that is now the holder's.
-- Params: duties, holder, ttl (seconds).
-- Index: leaders_pkey. A row locked by another is skipped: it is being taken or renewed.
UPDATE awa.leaders AS leader
SET holder = %(holder)s::text,
    epoch = leader.epoch + CASE WHEN leader.holder IS DISTINCT FROM %(holder)s::text THEN 1 ELSE 0 END,
    expires_at = now() + make_interval(secs => %(ttl)s::double precision)
WHERE leader.duty = ANY (ARRAY(
    SELECT free.duty
    FROM awa.leaders AS free
    WHERE free.duty = ANY (%(duties)s::text[])
      AND (free.holder = %(holder)s::text OR free.expires_at < now())
    ORDER BY free.duty
    FOR UPDATE SKIP LOCKED
))
RETURNING leader.duty, leader.epoch
