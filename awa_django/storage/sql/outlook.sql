-- What a job would meet that is enqueued now: the instant, the highest id of all jobs (0: there is none), whether a
-- worker serves its queue, and whether that is paused.
-- Params: queue; seen_within (seconds since a worker was last seen).
-- Index: jobs_hot_pkey, scheduled_jobs_pkey, queue_meta_pkey.
SELECT
    now(),
    coalesce(
        greatest(
            (SELECT max(job.id) FROM awa.jobs_hot AS job),
            (SELECT max(job.id) FROM awa.scheduled_jobs AS job)
        ),
        0
    ),
    EXISTS (
        SELECT FROM awa.runtime_instances AS instance
        WHERE %(queue)s::text = ANY (instance.queues)
          AND instance.last_seen_at > now() - make_interval(secs => %(seen_within)s::double precision)
    ),
    EXISTS (
        SELECT FROM awa.queue_meta AS meta
        WHERE meta.queue = %(queue)s::text
          AND meta.paused
          AND (meta.paused_until IS NULL OR meta.paused_until > now())
    )
