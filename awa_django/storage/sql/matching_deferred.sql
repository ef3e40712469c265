-- Look through the next deferred jobs in id order, whatever they are: the last id looked at (null at the end), and
-- the ids of those that match (null: none).
-- Params: states (null: any), kind, queue, tags (all of them), ended (the outcome of the newest error entry) (null: any);
--   except_kind, except_queue, except_priority (null: none); after_id, highest_id, row_count.
-- Index: scheduled_jobs_pkey, from where the last look ended.
-- The rows are bounded and not the matches: where few match, those would be looked for through the whole table.
-- Errors, which may be large, are read of rows in the right state alone, and where they are asked for.
WITH looked_at AS MATERIALIZED (
    SELECT
        job.id, job.state, job.kind, job.queue, job.tags, job.priority,
        CASE
            WHEN %(ended)s::text IS NOT NULL AND job.state = ANY (%(states)s::awa.job_state[])
                THEN job.errors[cardinality(job.errors)] ->> 'outcome'
        END AS ended
    FROM awa.scheduled_jobs AS job
    WHERE job.id > %(after_id)s::bigint
      AND job.id <= %(highest_id)s::bigint
    ORDER BY job.id
    LIMIT %(row_count)s::integer
)
SELECT
    max(job.id),
    array_agg(job.id ORDER BY job.id) FILTER (
        WHERE (%(states)s::awa.job_state[] IS NULL OR job.state = ANY (%(states)s::awa.job_state[]))
          AND (%(kind)s::text IS NULL OR job.kind = %(kind)s::text)
          AND (%(queue)s::text IS NULL OR job.queue = %(queue)s::text)
          AND (%(tags)s::text[] IS NULL OR job.tags @> %(tags)s::text[])
          AND (%(ended)s::text IS NULL OR job.ended = %(ended)s::text)
          AND (%(except_kind)s::text IS NULL OR job.kind <> %(except_kind)s::text)
          AND (%(except_queue)s::text IS NULL OR job.queue <> %(except_queue)s::text)
          AND (%(except_priority)s::smallint IS NULL OR job.priority <> %(except_priority)s::smallint)
    )
FROM looked_at AS job
