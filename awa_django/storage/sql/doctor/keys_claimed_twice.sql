-- Jobs with a claim on a key that is claimed more than once.
-- Params: after_key, last_key (between them, the last one too; null: without a bound).
-- Index: idx_awa_jobs_unique.
WITH found (subject) AS (
    SELECT unnest(twins.job_ids)
    FROM (
        SELECT array_agg(claim.job_id) AS job_ids
        FROM awa.job_unique_claims AS claim
        WHERE (%(after_key)s::bytea IS NULL OR claim.unique_key > %(after_key)s::bytea)
          AND (%(last_key)s::bytea IS NULL OR claim.unique_key <= %(last_key)s::bytea)
        GROUP BY claim.unique_key
        HAVING count(*) > 1
    ) AS twins
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
