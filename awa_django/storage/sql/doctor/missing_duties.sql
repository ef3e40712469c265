-- Leader duties that have no row to take, so nobody does them.
WITH found (subject) AS (
    SELECT duty.name
    FROM unnest('{promote,rescue,cron,prune,stats,vacuum}'::text[]) AS duty (name)
    WHERE NOT EXISTS (SELECT FROM awa.leaders AS leader WHERE leader.duty = duty.name)
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
