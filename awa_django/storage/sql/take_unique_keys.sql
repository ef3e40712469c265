-- Take the keys that are free for jobs that are about to be inserted; returns the ids that got theirs.
-- Waits for a rival that has taken one in an open transaction.
-- Params: unique_keys, job_ids (parallel arrays, sorted by key: the lock order of all batches).
-- Index: idx_awa_jobs_unique.
INSERT INTO awa.job_unique_claims (unique_key, job_id)
SELECT wanted.unique_key, wanted.job_id
FROM unnest(%(unique_keys)s::bytea[], %(job_ids)s::bigint[])
    WITH ORDINALITY AS wanted (unique_key, job_id, place)
ORDER BY wanted.place
ON CONFLICT (unique_key) DO NOTHING
RETURNING job_id
