-- Finalize running attempts of queues that keep no completed jobs: delete them; returns the ids done.
-- Params: job_ids, run_leases (parallel arrays), bounds (of the histograms, seconds).
-- Index: jobs_hot_pkey, one probe a run, in id order. Both are kept so as in complete.sql.
WITH done AS (
    DELETE FROM awa.jobs_hot AS job
    USING unnest(
        (SELECT %(job_ids)s::bigint[]),
        (SELECT %(run_leases)s::bigint[])
    ) AS entry (job_id, run_lease)
    WHERE job.id = entry.job_id
      AND job.run_lease = entry.run_lease
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
