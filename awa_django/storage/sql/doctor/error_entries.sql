-- Jobs whose history is no history: not objects, two entries of one lease, or of a lease yet to come.
WITH found (subject) AS (
    SELECT DISTINCT job.id
    FROM (
        SELECT hot.id, hot.run_lease, hot.errors FROM awa.jobs_hot AS hot WHERE cardinality(hot.errors) > 0
        UNION ALL
        SELECT deferred.id, deferred.run_lease, deferred.errors
        FROM awa.scheduled_jobs AS deferred
        WHERE cardinality(deferred.errors) > 0
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
