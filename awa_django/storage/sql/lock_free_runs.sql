-- Lock those of these attempts that nobody else has locked; returns id, run_lease of each.
-- Params: job_ids, run_leases (parallel arrays, sorted by id: the lock order).
-- Index: jobs_hot_pkey, one probe a run, kept so as in complete.sql.
SELECT job.id, job.run_lease
FROM unnest(
    (SELECT %(job_ids)s::bigint[]),
    (SELECT %(run_leases)s::bigint[])
) AS attempt (job_id, run_lease)
JOIN awa.jobs_hot AS job ON job.id = attempt.job_id
WHERE job.run_lease = attempt.run_lease
  AND job.state::text = 'running'
FOR NO KEY UPDATE OF job SKIP LOCKED
