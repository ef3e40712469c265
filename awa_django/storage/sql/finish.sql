-- Finalize running attempts as failed or cancelled; returns the ids done, a stale lease is absent.
-- Params: job_ids, run_leases, states, entries (parallel arrays, sorted by id: the lock order; an
--   entry is the JSON text of an error, or null).
-- Index: jobs_hot_pkey, one probe a run, kept so as in complete.sql.
UPDATE awa.jobs_hot AS job
SET state = attempt.state::awa.job_state,
    finalized_at = now(),
    heartbeat_at = NULL,
    deadline_at = NULL,
    attempt = least(job.attempt, job.max_attempts),
    errors = CASE
        WHEN attempt.entry IS NULL THEN job.errors
        ELSE job.errors || (attempt.entry::jsonb || jsonb_build_object(
            'at', now(), 'attempt', least(job.attempt, job.max_attempts)
        ))
    END
FROM unnest(
    (SELECT %(job_ids)s::bigint[]),
    (SELECT %(run_leases)s::bigint[]),
    (SELECT %(states)s::text[]),
    (SELECT %(entries)s::text[])
) AS attempt (job_id, run_lease, state, entry)
WHERE job.id = attempt.job_id
  AND job.run_lease = attempt.run_lease
  AND job.state::text = 'running'
RETURNING job.id
