-- Say that processes live, and as what.
-- Params: names, supervisors, hostname, pids, version, queues, concurrencies, running_counts, draining
--   (names, supervisors, pids, concurrencies, running_counts: parallel arrays).
INSERT INTO awa.runtime_instances AS instance (
    name, supervisor, hostname, pid, version, queues, concurrency, running_count, draining
)
SELECT
    process.name,
    process.supervisor,
    %(hostname)s::text,
    process.pid,
    %(version)s::text,
    %(queues)s::text[],
    process.concurrency,
    process.running_count,
    %(draining)s::boolean
FROM unnest(
    %(names)s::text[],
    %(supervisors)s::text[],
    %(pids)s::integer[],
    %(concurrencies)s::integer[],
    %(running_counts)s::integer[]
) AS process (name, supervisor, pid, concurrency, running_count)
ORDER BY process.name
ON CONFLICT (name) DO UPDATE
SET pid = excluded.pid,
    running_count = excluded.running_count,
    draining = excluded.draining,
    last_seen_at = now()
