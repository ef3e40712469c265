-- Jobs that hold one unique key at the same time.
WITH found (subject) AS (
    SELECT unnest(rivals.ids)
    FROM (
        SELECT array_agg(job.id) AS ids
        FROM (
            SELECT hot.id, hot.state, hot.unique_key, hot.unique_states
            FROM awa.jobs_hot AS hot
            WHERE hot.unique_key IS NOT NULL
            UNION ALL
            SELECT deferred.id, deferred.state, deferred.unique_key, deferred.unique_states
            FROM awa.scheduled_jobs AS deferred
            WHERE deferred.unique_key IS NOT NULL
        ) AS job
        WHERE get_bit(job.unique_states, array_position(enum_range(NULL::awa.job_state), job.state) - 1) = 1
        GROUP BY job.unique_key
        HAVING count(DISTINCT job.id) > 1
    ) AS rivals
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
