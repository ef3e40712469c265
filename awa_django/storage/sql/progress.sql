-- Store the progress of running attempts; returns the ids that are still theirs.
-- Params: job_ids, run_leases, progress (parallel arrays; progress is JSON text).
-- Index: jobs_hot_pkey, one probe a run; locked in id order. Both are kept so as in complete.sql.
-- progress is in no index, so each update is HOT.
WITH attempt AS MATERIALIZED (
    SELECT job.id, entry.progress
    FROM unnest(
        (SELECT %(job_ids)s::bigint[]),
        (SELECT %(run_leases)s::bigint[]),
        (SELECT %(progress)s::text[])
    ) AS entry (job_id, run_lease, progress)
    JOIN awa.jobs_hot AS job ON job.id = entry.job_id
    WHERE job.run_lease = entry.run_lease
      AND job.state::text = 'running'
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
)
UPDATE awa.jobs_hot AS job
SET progress = attempt.progress::jsonb
FROM attempt
WHERE job.id = attempt.id
RETURNING job.id
