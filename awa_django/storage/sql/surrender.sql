-- End one running attempt that can end in no other way; returns its id unless the lease is stale.
-- Params: job_id, run_lease, state (terminal), bit (that of the state in a mask), entry (JSON text),
--   bounds (of the histograms, seconds).
-- Index: jobs_hot_pkey (`state::text` hides that of running rows, as in complete.sql).
-- What may stand in the way gives way: the mask loses the bit of the state (another job may hold
-- the key), and errors of more than one dimension, to which nothing can be added, become one list.
WITH done AS (
    UPDATE awa.jobs_hot AS job
    SET state = %(state)s::awa.job_state,
        finalized_at = now(),
        heartbeat_at = NULL,
        deadline_at = NULL,
        attempt = least(job.attempt, job.max_attempts),
        unique_states = set_bit(job.unique_states, %(bit)s::integer, 0),
        errors = ARRAY(SELECT unnest(job.errors))
            || (%(entry)s::jsonb || jsonb_build_object(
                'at', now(), 'attempt', least(job.attempt, job.max_attempts)
            ))
    WHERE job.id = %(job_id)s::bigint
      AND job.run_lease = %(run_lease)s::bigint
      AND job.state::text = 'running'
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
