-- Unique claims of jobs that have another key, or do not hold theirs in their state.
-- Params: after_key, last_key (between them, the last one too; null: without a bound).
-- Index: idx_awa_jobs_unique, then the primary keys, one probe a claim (see in_both_tables.sql).
WITH found (subject) AS (
    SELECT claim.job_id
    FROM awa.job_unique_claims AS claim
    CROSS JOIN LATERAL (
        (
            SELECT hot.state, hot.unique_key, hot.unique_states
            FROM awa.jobs_hot AS hot
            WHERE hot.id >= claim.job_id AND hot.id <= claim.job_id
            ORDER BY hot.id
            LIMIT 1
        )
        UNION ALL
        (
            SELECT deferred.state, deferred.unique_key, deferred.unique_states
            FROM awa.scheduled_jobs AS deferred
            WHERE deferred.id >= claim.job_id AND deferred.id <= claim.job_id
            ORDER BY deferred.id
            LIMIT 1
        )
    ) AS job
    WHERE (%(after_key)s::bytea IS NULL OR claim.unique_key > %(after_key)s::bytea)
      AND (%(last_key)s::bytea IS NULL OR claim.unique_key <= %(last_key)s::bytea)
      AND (
          job.unique_key IS DISTINCT FROM claim.unique_key
          OR job.unique_states IS NULL
          OR get_bit(job.unique_states, array_position(enum_range(NULL::awa.job_state), job.state) - 1) = 0
      )
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
