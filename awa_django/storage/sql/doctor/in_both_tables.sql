-- Jobs whose id is in both tables.
WITH found (subject) AS (
    SELECT hot.id
    FROM awa.jobs_hot AS hot
    JOIN awa.scheduled_jobs AS deferred ON deferred.id = hot.id
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
