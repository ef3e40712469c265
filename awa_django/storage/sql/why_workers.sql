-- The live workers as one queue sees them: how many serve it, and how many runs they have room for.
-- Params: queue; seen_within (seconds since a process was last seen).
-- Index: jobs_hot_running (as many rows as the workers run); awa.runtime_instances is a row a process.
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
