-- Unique claims of jobs that do not exist.
WITH found (subject) AS (
    SELECT claim.job_id
    FROM awa.job_unique_claims AS claim
    WHERE NOT EXISTS (SELECT FROM awa.jobs_hot AS job WHERE job.id = claim.job_id)
      AND NOT EXISTS (SELECT FROM awa.scheduled_jobs AS job WHERE job.id = claim.job_id)
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
