-- Jobs in the table that is not for their state.
-- Params: after_id, last_id (between them, the last one too; null: without a bound).
-- Index: jobs_hot_pkey, scheduled_jobs_pkey (no other is in the order of ids).
WITH found (subject) AS (
    (
        SELECT job.id
        FROM awa.jobs_hot AS job
        WHERE (%(after_id)s::bigint IS NULL OR job.id > %(after_id)s::bigint)
          AND (%(last_id)s::bigint IS NULL OR job.id <= %(last_id)s::bigint)
          AND job.state IN ('scheduled', 'retryable')
        ORDER BY job.id
    )
    UNION ALL
    (
        SELECT job.id
        FROM awa.scheduled_jobs AS job
        WHERE (%(after_id)s::bigint IS NULL OR job.id > %(after_id)s::bigint)
          AND (%(last_id)s::bigint IS NULL OR job.id <= %(last_id)s::bigint)
          AND job.state NOT IN ('scheduled', 'retryable')
        ORDER BY job.id
    )
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
