-- The duties of the whole installation, with who does each: null when its lease is over.
SELECT
    leader.duty,
    CASE WHEN leader.expires_at > now() THEN leader.holder END,
    leader.epoch
FROM awa.leaders AS leader
ORDER BY leader.duty
