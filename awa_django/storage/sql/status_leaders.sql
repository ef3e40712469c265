-- The duties, who does each (null when nobody does) and for how many seconds yet.
SELECT
    leader.duty,
    CASE WHEN leader.expires_at > now() THEN leader.holder END,
    CASE WHEN leader.expires_at > now() THEN extract(epoch FROM leader.expires_at - now())::double precision END
FROM awa.leaders AS leader
ORDER BY leader.duty
