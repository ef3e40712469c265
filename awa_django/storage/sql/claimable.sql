-- The ids that the next claim of these queues would take, without locking them.
-- Params: queues, limits (parallel arrays), total, excluded_kinds.
-- Index: jobs_hot_claim.
SELECT due.id
FROM unnest(%(queues)s::text[], %(limits)s::integer[]) AS wanted (queue, capacity)
CROSS JOIN LATERAL (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.state = 'available'
      AND job.queue = wanted.queue
      AND job.run_at <= now()
      AND job.kind <> ALL (%(excluded_kinds)s::text[])
    ORDER BY job.priority, job.run_at, job.id
    LIMIT wanted.capacity
) AS due
LIMIT %(total)s::integer
