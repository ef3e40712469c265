-- The id at which a look at jobs ends that begins behind another one and meets at most so many rows of each
-- table; null where it reaches the newest.
-- Params: after_id (null: from the first), row_count.
-- Index: jobs_hot_pkey, scheduled_jobs_pkey.
SELECT least(
    (
        SELECT job.id
        FROM awa.jobs_hot AS job
        WHERE %(after_id)s::bigint IS NULL OR job.id > %(after_id)s::bigint
        ORDER BY job.id
        LIMIT 1 OFFSET %(row_count)s::integer - 1
    ),
    (
        SELECT job.id
        FROM awa.scheduled_jobs AS job
        WHERE %(after_id)s::bigint IS NULL OR job.id > %(after_id)s::bigint
        ORDER BY job.id
        LIMIT 1 OFFSET %(row_count)s::integer - 1
    )
)
