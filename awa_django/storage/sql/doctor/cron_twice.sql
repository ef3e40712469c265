-- Jobs of one schedule for the same fire time.
WITH found (subject) AS (
    SELECT unnest(twins.ids)
    FROM (
        SELECT array_agg(job.id) AS ids
        FROM (
            SELECT hot.id, hot.metadata -> 'awa:cron' AS fire FROM awa.jobs_hot AS hot
            UNION ALL
            SELECT deferred.id, deferred.metadata -> 'awa:cron' FROM awa.scheduled_jobs AS deferred
        ) AS job
        WHERE job.fire IS NOT NULL
        GROUP BY job.fire
        HAVING count(*) > 1
    ) AS twins
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
