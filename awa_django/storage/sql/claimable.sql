-- The ids that the next claim of these queues would take, without locking them.
-- Params: queues, limits (parallel arrays), total, share, excluded_kinds (see claim).
-- Index: jobs_hot_claim, once a queue: also for those that take what is beyond its share.
SELECT chosen.id
FROM (
    SELECT due.id, due.place, wanted.turn
    FROM unnest(%(queues)s::text[], %(limits)s::integer[]) WITH ORDINALITY AS wanted (queue, capacity, turn)
    CROSS JOIN LATERAL (
        SELECT job.id, row_number() OVER (ORDER BY job.priority, job.run_at, job.id) AS place
        FROM awa.jobs_hot AS job
        WHERE job.state = 'available'
          AND job.queue = wanted.queue
          AND job.run_at <= now()
          AND job.kind <> ALL (%(excluded_kinds)s::text[])
        ORDER BY job.priority, job.run_at, job.id
        LIMIT wanted.capacity
    ) AS due
) AS chosen
ORDER BY chosen.place > %(share)s::integer, chosen.turn, chosen.place
LIMIT %(total)s::integer
