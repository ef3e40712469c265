-- Jobs with values that the CHECKs of the tables refuse.
-- Params: after_id, last_id (between them, the last one too; null: without a bound).
-- Index: jobs_hot_pkey, scheduled_jobs_pkey (no other is in the order of ids).
WITH found (subject) AS (
    SELECT job.id
    FROM (
        (
            SELECT hot.*
            FROM awa.jobs_hot AS hot
            WHERE (%(after_id)s::bigint IS NULL OR hot.id > %(after_id)s::bigint)
              AND (%(last_id)s::bigint IS NULL OR hot.id <= %(last_id)s::bigint)
            ORDER BY hot.id
        )
        UNION ALL
        (
            SELECT deferred.*
            FROM awa.scheduled_jobs AS deferred
            WHERE (%(after_id)s::bigint IS NULL OR deferred.id > %(after_id)s::bigint)
              AND (%(last_id)s::bigint IS NULL OR deferred.id <= %(last_id)s::bigint)
            ORDER BY deferred.id
        )
    ) AS job
    WHERE char_length(job.kind) NOT BETWEEN 1 AND 200
       OR char_length(job.queue) NOT BETWEEN 1 AND 200
       OR jsonb_typeof(job.args) <> 'object'
       OR jsonb_typeof(job.metadata) <> 'object'
       OR job.priority NOT BETWEEN -98 AND 102
       OR job.max_attempts NOT BETWEEN 1 AND 1000
       OR job.run_lease < 0
       OR cardinality(job.tags) > 20
       OR octet_length(job.unique_key) <> 16
       OR NOT isfinite(job.run_at)
       OR NOT isfinite(job.created_at)
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
