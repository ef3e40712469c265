-- Whether a worker of these queues would still find something: available, or deferred and due.
-- Params: queues, kinds. Paused queues do not count: waiting for them would never end.
-- Index: jobs_hot_claim, scheduled_jobs_queue_due. Scalar subqueries and no EXISTS, for which the
-- planner may read all that is due into a hash.
SELECT EXISTS (
    SELECT FROM unnest(%(queues)s::text[]) AS wanted (queue)
    WHERE NOT EXISTS (
            SELECT FROM awa.queue_meta AS meta
            WHERE meta.queue = wanted.queue
              AND meta.paused
              AND (meta.paused_until IS NULL OR meta.paused_until > now())
        )
      AND coalesce(
          (
              SELECT true
              FROM awa.jobs_hot AS job
              WHERE job.state = 'available'
                AND job.queue = wanted.queue
                AND job.run_at <= now()
                AND job.kind = ANY (%(kinds)s::text[])
              LIMIT 1
          ),
          (
              SELECT true
              FROM awa.scheduled_jobs AS job
              WHERE job.queue = wanted.queue
                AND job.run_at <= now()
                AND job.kind = ANY (%(kinds)s::text[])
              LIMIT 1
          )
      )
)
