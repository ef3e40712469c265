-- Finalize running attempts as failed or cancelled; returns the ids done, a stale lease is absent.
-- Params: job_ids, run_leases, states, entries (parallel arrays; an entry is the JSON text of an
--   error, or null), bounds (of the histograms, seconds).
-- Index: jobs_hot_pkey, one probe a run; locked in id order. Both are kept so as in complete.sql.
WITH attempt AS MATERIALIZED (
    SELECT job.id, entry.state, entry.error_entry
    FROM unnest(
        (SELECT %(job_ids)s::bigint[]),
        (SELECT %(run_leases)s::bigint[]),
        (SELECT %(states)s::text[]),
        (SELECT %(entries)s::text[])
    ) AS entry (job_id, run_lease, state, error_entry)
    JOIN awa.jobs_hot AS job ON job.id = entry.job_id
    WHERE job.run_lease = entry.run_lease
      AND job.state::text = 'running'
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
),
done AS (
    UPDATE awa.jobs_hot AS job
    SET state = attempt.state::awa.job_state,
        finalized_at = now(),
        heartbeat_at = NULL,
        deadline_at = NULL,
        attempt = least(job.attempt, job.max_attempts),
        errors = CASE
            WHEN attempt.error_entry IS NULL THEN job.errors
            ELSE job.errors || (attempt.error_entry::jsonb || jsonb_build_object(
                'at', now(), 'attempt', least(job.attempt, job.max_attempts), 'attempted_at', job.attempted_at
            ))
        END
    FROM attempt
    WHERE job.id = attempt.id
    RETURNING job.id, job.state, job.queue, job.kind, job.run_at, job.attempted_at
),
counted AS (
    INSERT INTO awa.queue_stats_deltas (
        minute, queue, kind, failed_count, cancelled_count,
        wait_seconds, run_seconds, wait_bucket, run_bucket
    )
    SELECT
        date_trunc('minute', now()), done.queue, done.kind, count(*) FILTER (WHERE done.state = 'failed'),
        count(*) FILTER (WHERE done.state = 'cancelled'),
        extract(epoch FROM sum(greatest(done.attempted_at - done.run_at, interval '0'))),
        extract(epoch FROM sum(greatest(now() - done.attempted_at, interval '0'))),
        width_bucket(date_part('epoch', done.attempted_at - done.run_at), %(bounds)s::double precision[])
            AS wait_bucket,
        width_bucket(date_part('epoch', now() - done.attempted_at), %(bounds)s::double precision[])
            AS run_bucket
    FROM done
    GROUP BY done.queue, done.kind, wait_bucket, run_bucket
)
SELECT done.id FROM done
