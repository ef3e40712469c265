-- Move running attempts to the deferred table (retry, snooze, kind unknown here); returns the ids done.
-- Params: job_ids, run_leases, states, delays (seconds from now()), refunds (attempts given back: 0 or 1),
--   entries (JSON text of an error, or null), unknown_kinds (flag and count it in the metadata), aging (the
--   job has a max_age): parallel arrays; bounds (of the histograms, seconds).
-- The age of a job counts from when it was due first: a retry keeps that instant in the metadata, as its
-- run_at becomes that of the next attempt. A snooze begins anew.
-- Index: jobs_hot_pkey, one probe a run; locked in id order. Both are kept so as in complete.sql.
WITH attempt AS MATERIALIZED (
    SELECT job.id, entry.state, entry.delay, entry.refund, entry.error_entry, entry.unknown_kind, entry.aging
    FROM unnest(
        (SELECT %(job_ids)s::bigint[]),
        (SELECT %(run_leases)s::bigint[]),
        (SELECT %(states)s::text[]),
        (SELECT %(delays)s::double precision[]),
        (SELECT %(refunds)s::smallint[]),
        (SELECT %(entries)s::text[]),
        (SELECT %(unknown_kinds)s::boolean[]),
        (SELECT %(aging)s::boolean[])
    ) AS entry (job_id, run_lease, state, delay, refund, error_entry, unknown_kind, aging)
    JOIN awa.jobs_hot AS job ON job.id = entry.job_id
    WHERE job.run_lease = entry.run_lease
      AND job.state::text = 'running'
    ORDER BY job.id
    FOR UPDATE OF job
),
gone AS (
    DELETE FROM awa.jobs_hot AS job
    USING attempt
    WHERE job.id = attempt.id
    RETURNING job.*, attempt.state AS new_state, attempt.delay, attempt.refund,
        attempt.error_entry, attempt.unknown_kind, attempt.aging
),
counted AS (
    INSERT INTO awa.queue_stats_deltas (
        minute, queue, kind, retried_count,
        wait_seconds, run_seconds, wait_bucket, run_bucket
    )
    SELECT
        date_trunc('minute', now()), gone.queue, gone.kind, count(*),
        extract(epoch FROM sum(greatest(gone.attempted_at - gone.run_at, interval '0'))),
        extract(epoch FROM sum(greatest(now() - gone.attempted_at, interval '0'))),
        width_bucket(date_part('epoch', gone.attempted_at - gone.run_at), %(bounds)s::double precision[])
            AS wait_bucket,
        width_bucket(date_part('epoch', now() - gone.attempted_at), %(bounds)s::double precision[])
            AS run_bucket
    FROM gone
    WHERE gone.new_state = 'retryable'
    GROUP BY gone.queue, gone.kind, wait_bucket, run_bucket
)
INSERT INTO awa.scheduled_jobs (
    id, kind, queue, args, state, priority, attempt, max_attempts, run_at, heartbeat_at, deadline_at,
    attempted_at, finalized_at, created_at, errors, metadata, tags, unique_key, unique_states, run_lease,
    progress, result, worker
)
SELECT
    gone.id,
    gone.kind,
    gone.queue,
    gone.args,
    gone.new_state::awa.job_state,
    gone.priority,
    greatest(gone.attempt - gone.refund, 0),
    gone.max_attempts,
    now() + make_interval(secs => gone.delay),
    NULL,
    NULL,
    gone.attempted_at,
    NULL,
    gone.created_at,
    CASE
        WHEN gone.error_entry IS NULL THEN gone.errors
        ELSE gone.errors || (gone.error_entry::jsonb || jsonb_build_object(
            'at', now(), 'attempted_at', gone.attempted_at
        ))
    END,
    CASE
        WHEN gone.unknown_kind THEN gone.metadata || jsonb_build_object(
            'awa:unknown_kind',
            jsonb_build_object('count', CASE
                WHEN jsonb_typeof(gone.metadata #> '{awa:unknown_kind,count}') = 'number'
                    THEN least(greatest((gone.metadata #> '{awa:unknown_kind,count}')::numeric, 0), 1000000)::integer
                        + 1
                ELSE 1
            END)
        )
        WHEN NOT gone.aging THEN gone.metadata
        WHEN gone.new_state = 'scheduled' THEN gone.metadata - 'awa:due_at'
        WHEN gone.attempt > 1 AND gone.metadata ? 'awa:due_at' THEN gone.metadata
        ELSE gone.metadata || jsonb_build_object('awa:due_at', extract(epoch FROM gone.run_at))
    END,
    gone.tags,
    gone.unique_key,
    gone.unique_states,
    gone.run_lease,
    gone.progress,
    gone.result,
    gone.worker
FROM gone
RETURNING id
