-- Jobs that should hold their unique key and have no claim on it.
-- Params: after_id, last_id (between them, the last one too; null: without a bound).
-- Index: jobs_hot_pkey, scheduled_jobs_pkey, then idx_awa_jobs_unique, one probe a job.
WITH found (subject) AS (
    SELECT job.id
    FROM (
        (
            SELECT hot.id, hot.state, hot.unique_key, hot.unique_states
            FROM awa.jobs_hot AS hot
            WHERE (%(after_id)s::bigint IS NULL OR hot.id > %(after_id)s::bigint)
              AND (%(last_id)s::bigint IS NULL OR hot.id <= %(last_id)s::bigint)
              AND hot.unique_key IS NOT NULL
            ORDER BY hot.id
        )
        UNION ALL
        (
            SELECT deferred.id, deferred.state, deferred.unique_key, deferred.unique_states
            FROM awa.scheduled_jobs AS deferred
            WHERE (%(after_id)s::bigint IS NULL OR deferred.id > %(after_id)s::bigint)
              AND (%(last_id)s::bigint IS NULL OR deferred.id <= %(last_id)s::bigint)
              AND deferred.unique_key IS NOT NULL
            ORDER BY deferred.id
        )
    ) AS job
    WHERE get_bit(job.unique_states, array_position(enum_range(NULL::awa.job_state), job.state) - 1) = 1
      AND (
          SELECT true
          FROM awa.job_unique_claims AS claim
          WHERE claim.unique_key = job.unique_key AND claim.job_id = job.id
          LIMIT 1
      ) IS NULL
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
