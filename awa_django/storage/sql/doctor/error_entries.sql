-- Jobs whose history is no history: not objects, two entries of one lease, or of a lease yet to come.
-- Params: after_id, last_id (between them, the last one too; null: without a bound).
-- Index: jobs_hot_pkey, scheduled_jobs_pkey (no other is in the order of ids).
WITH found (subject) AS (
    SELECT job.id
    FROM (
        (
            SELECT hot.id, hot.run_lease, hot.errors
            FROM awa.jobs_hot AS hot
            WHERE (%(after_id)s::bigint IS NULL OR hot.id > %(after_id)s::bigint)
              AND (%(last_id)s::bigint IS NULL OR hot.id <= %(last_id)s::bigint)
              AND cardinality(hot.errors) > 0
            ORDER BY hot.id
        )
        UNION ALL
        (
            SELECT deferred.id, deferred.run_lease, deferred.errors
            FROM awa.scheduled_jobs AS deferred
            WHERE (%(after_id)s::bigint IS NULL OR deferred.id > %(after_id)s::bigint)
              AND (%(last_id)s::bigint IS NULL OR deferred.id <= %(last_id)s::bigint)
              AND cardinality(deferred.errors) > 0
            ORDER BY deferred.id
        )
    ) AS job
    CROSS JOIN LATERAL (
        SELECT
            bool_and(jsonb_typeof(entry) = 'object') AS all_objects,
            count(entry -> 'run_lease') AS lease_count,
            count(DISTINCT entry -> 'run_lease') AS distinct_lease_count,
            max(CASE WHEN jsonb_typeof(entry -> 'run_lease') = 'number' THEN (entry ->> 'run_lease')::numeric END)
                AS newest_lease
        FROM unnest(job.errors) AS entry
    ) AS history
    WHERE history.all_objects IS NOT TRUE
       OR history.lease_count <> history.distinct_lease_count
       OR history.newest_lease > job.run_lease
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
