-- Unique claims of jobs that do not exist.
-- Params: after_key, last_key (between them, the last one too; null: without a bound).
-- Index: idx_awa_jobs_unique, then the primary keys, one probe a claim (see in_both_tables.sql).
WITH found (subject) AS (
    SELECT claim.job_id
    FROM awa.job_unique_claims AS claim
    WHERE (%(after_key)s::bytea IS NULL OR claim.unique_key > %(after_key)s::bytea)
      AND (%(last_key)s::bytea IS NULL OR claim.unique_key <= %(last_key)s::bytea)
      AND coalesce(
          (
              SELECT true
              FROM awa.jobs_hot AS job
              WHERE job.id >= claim.job_id AND job.id <= claim.job_id
              ORDER BY job.id
              LIMIT 1
          ),
          (
              SELECT true
              FROM awa.scheduled_jobs AS job
              WHERE job.id >= claim.job_id AND job.id <= claim.job_id
              ORDER BY job.id
              LIMIT 1
          )
      ) IS NULL
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
