-- Which other job holds the unique key of a job; no row when none does.
-- Params: job_id.
-- Index: jobs_hot_pkey, scheduled_jobs_pkey, idx_awa_jobs_unique.
SELECT claim.job_id
FROM awa.job_unique_claims AS claim
WHERE claim.unique_key = coalesce(
        (SELECT job.unique_key FROM awa.jobs_hot AS job WHERE job.id = %(job_id)s::bigint),
        (SELECT job.unique_key FROM awa.scheduled_jobs AS job WHERE job.id = %(job_id)s::bigint)
    )
  AND claim.job_id <> %(job_id)s::bigint
