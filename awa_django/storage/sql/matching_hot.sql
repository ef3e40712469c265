-- Look through the next hot jobs in id order, whatever they are: the last id looked at (null at the end), and
-- the ids of those that have not ended and match (null: none).
-- Params: kind, queue (null: any), tags (all of them; null: any), after_id, highest_id, row_count.
-- Index: jobs_hot_pkey, from where the last look ended.
-- The rows are bounded and not the matches: where few match, those would be looked for through the whole table.
WITH looked_at AS MATERIALIZED (
    SELECT job.id, job.state, job.kind, job.queue, job.tags
    FROM awa.jobs_hot AS job
    WHERE job.id > %(after_id)s::bigint
      AND job.id <= %(highest_id)s::bigint
    ORDER BY job.id
    LIMIT %(row_count)s::integer
)
SELECT
    max(job.id),
    array_agg(job.id ORDER BY job.id) FILTER (
        WHERE job.state IN ('available', 'running', 'waiting_external')
          AND (%(kind)s::text IS NULL OR job.kind = %(kind)s::text)
          AND (%(queue)s::text IS NULL OR job.queue = %(queue)s::text)
          AND (%(tags)s::text[] IS NULL OR job.tags @> %(tags)s::text[])
    )
FROM looked_at AS job
