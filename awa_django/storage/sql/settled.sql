-- Which of these attempts have ended as their own worker said, although the answer got lost.
-- Params: job_ids, run_leases (parallel arrays), worker, gone_is_settled (a missing row counts:
--   queues that delete at completion).
-- Index: jobs_hot_pkey, scheduled_jobs_pkey.
-- Run it in a second statement: in the snapshot of the first the lost commit may not be visible.
SELECT attempt.job_id
FROM unnest(%(job_ids)s::bigint[], %(run_leases)s::bigint[], %(gone_is_settled)s::boolean[])
    AS attempt (job_id, run_lease, gone_is_settled)
LEFT JOIN LATERAL (
    SELECT job.state, job.run_lease, job.worker, job.errors
    FROM awa.jobs_hot AS job
    WHERE job.id = attempt.job_id
    UNION ALL
    SELECT job.state, job.run_lease, job.worker, job.errors
    FROM awa.scheduled_jobs AS job
    WHERE job.id = attempt.job_id
) AS job ON true
WHERE (job.state IS NULL AND attempt.gone_is_settled)
   OR (job.state = 'completed' AND job.run_lease = attempt.run_lease)
   OR (
       -- The newest error entry is this run's own: retried or failed by this worker, and not by
       -- who rescued or cancelled it (`by`).
       job.errors[cardinality(job.errors)] ->> 'run_lease' = attempt.run_lease::text
       AND job.errors[cardinality(job.errors)] ->> 'worker' = %(worker)s::text
       AND NOT job.errors[cardinality(job.errors)] ? 'by'
   )
   OR (
       -- Snoozed or released: no entry, and not claimed again since.
       job.state IN ('scheduled', 'available')
       AND job.run_lease = attempt.run_lease
       AND job.worker = %(worker)s::text
   )
