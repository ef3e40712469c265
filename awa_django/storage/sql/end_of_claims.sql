-- The key at which a look at unique claims ends that begins behind another one and meets at most so many; no row
-- where it reaches the last.
-- Params: after_key (null: from the first), row_count.
-- Index: idx_awa_jobs_unique.
SELECT claim.unique_key
FROM awa.job_unique_claims AS claim
WHERE %(after_key)s::bytea IS NULL OR claim.unique_key > %(after_key)s::bytea
ORDER BY claim.unique_key
LIMIT 1 OFFSET %(row_count)s::integer - 1
