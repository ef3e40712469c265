-- Finalize running attempts as completed; returns the ids done, a stale lease is absent.
-- Params: job_ids, run_leases, results (parallel arrays; a result is JSON text or null; null for none at all),
--   bounds (of the histograms, seconds).
-- Index: jobs_hot_pkey, one probe a run. Two things keep it so: the arrays come out of subselects (the
-- planner reckons with few runs, and never joins them to a whole table), and `state::text` hides the
-- index of running rows, which it would scan as a whole: that holds every run since the last vacuum
-- (500 completions after 100,000 jobs with a snapshot held: 13.6 ms, now 5).
-- The arrays are in id order, and so are the locks, where nothing is scanned: see planned_by_index. Two batches
-- that lock in different orders deadlock. Other statements lock first, in a CTE: 56 bytes of WAL and 1.6 us a job.
WITH done AS (
    UPDATE awa.jobs_hot AS job
    SET state = 'completed',
        finalized_at = now(),
        heartbeat_at = NULL,
        deadline_at = NULL,
        progress = NULL,
        result = entry.result::jsonb
    FROM unnest(
        (SELECT %(job_ids)s::bigint[]),
        (SELECT %(run_leases)s::bigint[]),
        (SELECT %(results)s::text[])
    ) AS entry (job_id, run_lease, result)
    WHERE job.id = entry.job_id
      AND job.run_lease = entry.run_lease  -- a rescued attempt matches nothing
      AND job.state::text = 'running'
    RETURNING job.id, job.queue, job.kind, job.run_at, job.attempted_at
),
counted AS (
    INSERT INTO awa.queue_stats_deltas (
        minute, queue, kind, completed_count,
        wait_seconds, run_seconds, wait_bucket, run_bucket
    )
    SELECT
        date_trunc('minute', now()), done.queue, done.kind, count(*),
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
