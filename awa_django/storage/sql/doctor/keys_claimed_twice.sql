-- Jobs with a claim on a key that is claimed more than once.
WITH found (subject) AS (
    SELECT claim.job_id
    FROM awa.job_unique_claims AS claim
    WHERE claim.unique_key IN (
        SELECT twin.unique_key
        FROM awa.job_unique_claims AS twin
        GROUP BY twin.unique_key
        HAVING count(*) > 1
    )
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
