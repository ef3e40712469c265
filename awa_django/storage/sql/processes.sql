-- Who does what: the processes that say they live (each supervisor before its children), the duties of the whole
-- installation (without a holder where a lease is over), and what runs; one row of three JSON arrays of arrays.
-- Params: processes_cap, running_cap (rows at most).
-- Index: jobs_hot_running (as many rows as the workers run).
SELECT
    (
        SELECT coalesce(json_agg(process.cells ORDER BY process.place), '[]')::text
        FROM (
            SELECT
                json_build_array(
                    instance.name, instance.supervisor, instance.hostname, instance.pid, instance.version,
                    instance.queues, instance.concurrency, instance.running_count, instance.draining,
                    instance.started_at, extract(epoch FROM now() - instance.last_seen_at)::double precision
                ) AS cells,
                row_number() OVER (
                    ORDER BY
                        coalesce(instance.supervisor, instance.name), instance.supervisor IS NOT NULL, instance.name
                ) AS place
            FROM awa.runtime_instances AS instance
            ORDER BY place
            LIMIT %(processes_cap)s::integer
        ) AS process
    ),
    (
        SELECT coalesce(
            json_agg(
                json_build_array(
                    leader.duty,
                    CASE WHEN leader.expires_at > now() THEN leader.holder END,
                    leader.epoch,
                    CASE
                        WHEN leader.expires_at > now()
                        THEN extract(epoch FROM leader.expires_at - now())::double precision
                    END
                )
                ORDER BY leader.duty
            ),
            '[]'
        )::text
        FROM awa.leaders AS leader
    ),
    (
        SELECT coalesce(
            json_agg(json_build_array(job.id, job.kind, job.queue, job.worker, job.attempted_at) ORDER BY job.id), '[]'
        )::text
        FROM (
            SELECT running.id, running.kind, running.queue, running.worker, running.attempted_at
            FROM awa.jobs_hot AS running
            WHERE running.state = 'running'
            LIMIT %(running_cap)s::integer
        ) AS job
    )
