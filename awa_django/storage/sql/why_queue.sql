-- What a waiting job has before it: who serves its queue and has room for a run, and the jobs that go first,
-- counted to a cap: available ones of its queue, or deferred ones that are due.
-- Params: queue; seen_within (seconds since a process was last seen); priority, run_at, job_id (its place in
--   the order of the claim and of the promotion); is_deferred (in which of the two it stands); cap (the
--   highest count).
-- Index: jobs_hot_running (as many rows as the workers run); jobs_hot_claim or scheduled_jobs_due, one ordered
-- scan that ends at the place; awa.runtime_instances is a row a process.
-- A child has a supervisor; a supervisor runs no job itself.
WITH process AS MATERIALIZED (
    SELECT
        instance.name,
        instance.supervisor IS NOT NULL AS is_child,
        instance.concurrency,
        instance.draining,
        instance.last_seen_at,
        instance.last_seen_at > now() - make_interval(secs => %(seen_within)s::double precision) AS is_seen,
        %(queue)s::text = ANY (instance.queues) AS serves
    FROM awa.runtime_instances AS instance
),
running AS MATERIALIZED (
    SELECT job.worker, count(*) AS count
    FROM awa.jobs_hot AS job
    WHERE job.state = 'running'
    GROUP BY job.worker
)
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM awa.jobs_hot AS job
            WHERE NOT %(is_deferred)s::boolean
              AND job.state = 'available'
              AND job.queue = %(queue)s::text
              AND job.run_at <= now()
              AND (job.priority, job.run_at, job.id)
                  < (%(priority)s::smallint, %(run_at)s::timestamptz, %(job_id)s::bigint)
            ORDER BY job.priority, job.run_at, job.id
            LIMIT %(cap)s::integer
        ) AS ahead
    ),
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM awa.scheduled_jobs AS job
            WHERE %(is_deferred)s::boolean
              AND job.run_at <= now()
              AND (job.run_at, job.id) < (%(run_at)s::timestamptz, %(job_id)s::bigint)
            ORDER BY job.run_at, job.id
            LIMIT %(cap)s::integer
        ) AS overdue
    ),
    count(*) FILTER (WHERE process.is_child AND process.is_seen AND process.serves AND NOT process.draining),
    count(*) FILTER (WHERE process.is_child AND process.is_seen AND process.serves AND process.draining),
    count(*) FILTER (WHERE process.is_child AND NOT process.is_seen AND process.serves),
    count(*) FILTER (WHERE process.is_child AND process.is_seen AND NOT process.serves),
    count(*) FILTER (WHERE NOT process.is_child AND process.is_seen AND process.serves),
    max(process.last_seen_at) FILTER (WHERE process.is_child AND process.serves),
    coalesce(sum(process.concurrency) FILTER (
        WHERE process.is_child AND process.is_seen AND process.serves AND NOT process.draining
    ), 0),
    coalesce(sum(greatest(process.concurrency - coalesce(running.count, 0), 0)) FILTER (
        WHERE process.is_child AND process.is_seen AND process.serves AND NOT process.draining
    ), 0)
FROM process
LEFT JOIN running ON running.worker = process.name
