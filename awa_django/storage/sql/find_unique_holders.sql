-- The jobs that hold the unique keys now; a key that nobody holds is absent.
-- Params: unique_keys.
-- Index: idx_awa_jobs_unique.
SELECT claim.unique_key, claim.job_id
FROM awa.job_unique_claims AS claim
WHERE claim.unique_key = ANY (%(unique_keys)s::bytea[])
