-- Unique claims of jobs that have another key, or do not hold theirs in their state.
WITH found (subject) AS (
    SELECT claim.job_id
    FROM awa.job_unique_claims AS claim
    JOIN (
        SELECT hot.id, hot.state, hot.unique_key, hot.unique_states FROM awa.jobs_hot AS hot
        UNION ALL
        SELECT deferred.id, deferred.state, deferred.unique_key, deferred.unique_states
        FROM awa.scheduled_jobs AS deferred
    ) AS job ON job.id = claim.job_id
    WHERE job.unique_key IS DISTINCT FROM claim.unique_key
       OR job.unique_states IS NULL
       OR get_bit(job.unique_states, array_position(enum_range(NULL::awa.job_state), job.state) - 1) = 0
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
