-- Look through the next jobs of one table in id order, whatever they are: the last id looked at (null at the end), and
-- the ids of those that match (null: none).
-- Params: table ('hot' or 'deferred'); states, kind, queue, tags (all of them), ended (the outcome of the newest error
--   entry, as far as that tells of the end there was) (null: any); except_kind, except_queue, except_priority,
--   except_run_at (null: none); ended_by (what ended later is left out; null: nothing); after_id, highest_id, row_count.
-- Index: jobs_hot_pkey or scheduled_jobs_pkey, from where the last look ended; the other table is not in the plan.
-- The rows are bounded and not the matches: where few match, those would be looked for through the whole table.
-- Errors, which may be large, are read of rows in the right state alone, and where they are asked for.
WITH looked_at AS MATERIALIZED (
    (
        SELECT
            job.id, job.state, job.kind, job.queue, job.tags, job.priority, job.run_at, job.finalized_at,
            CASE
                WHEN %(ended)s::text IS NOT NULL AND job.state = ANY (%(states)s::awa.job_state[])
                    THEN job.errors[cardinality(job.errors)]
            END AS newest
        FROM awa.jobs_hot AS job
        WHERE %(table)s::text = 'hot'
          AND job.id > %(after_id)s::bigint
          AND job.id <= %(highest_id)s::bigint
        ORDER BY job.id
        LIMIT %(row_count)s::integer
    )
    UNION ALL
    (
        SELECT
            job.id, job.state, job.kind, job.queue, job.tags, job.priority, job.run_at, job.finalized_at,
            CASE
                WHEN %(ended)s::text IS NOT NULL AND job.state = ANY (%(states)s::awa.job_state[])
                    THEN job.errors[cardinality(job.errors)]
            END AS newest
        FROM awa.scheduled_jobs AS job
        WHERE %(table)s::text = 'deferred'
          AND job.id > %(after_id)s::bigint
          AND job.id <= %(highest_id)s::bigint
        ORDER BY job.id
        LIMIT %(row_count)s::integer
    )
)
SELECT
    max(job.id),
    array_agg(job.id ORDER BY job.id) FILTER (
        WHERE coalesce(job.state = ANY (%(states)s::awa.job_state[]), true)
          AND coalesce(job.kind = %(kind)s::text, true)
          AND coalesce(job.queue = %(queue)s::text, true)
          AND coalesce(job.tags @> %(tags)s::text[], true)
          AND (
              %(ended)s::text IS NULL
              OR job.newest ->> 'outcome' = %(ended)s::text AND NOT coalesce(
                  jsonb_path_exists_tz(
                      job.newest,
                      '$.at.datetime() ? (@ < $since.datetime() || @ > $until.datetime())',
                      jsonb_build_object(
                          'since', job.finalized_at - interval '1 second', 'until', job.finalized_at + interval '1 second'
                      ),
                      true
                  ),
                  false
              )
          )
          AND coalesce(job.kind <> %(except_kind)s::text, true)
          AND coalesce(job.queue <> %(except_queue)s::text, true)
          AND coalesce(job.priority <> %(except_priority)s::smallint, true)
          AND coalesce(job.run_at <> %(except_run_at)s::timestamptz, true)
          AND coalesce(job.finalized_at <= %(ended_by)s::timestamptz, true)
    )
FROM looked_at AS job
