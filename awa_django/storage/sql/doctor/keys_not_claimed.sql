-- Jobs that should hold their unique key and have no claim on it.
WITH found (subject) AS (
    SELECT job.id
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
      AND NOT EXISTS (
          SELECT FROM awa.job_unique_claims AS claim
          WHERE claim.unique_key = job.unique_key AND claim.job_id = job.id
      )
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
