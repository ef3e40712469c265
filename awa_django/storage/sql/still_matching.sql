-- Lock those of the jobs that are in the right state, wherever they are now: the ids of those that still match, in order.
-- Params: job_ids; states, kind, queue, tags, ended, except_kind, except_queue, except_priority, except_run_at, ended_by as in
--   matching; highest_id is not asked for again.
-- Index: jobs_hot_pkey, scheduled_jobs_pkey: no other one serves a condition within coalesce, however few rows
-- statistics say there are.
-- What is looked at is the row as it is once it is locked.
WITH hot AS MATERIALIZED (
    SELECT
        job.id, job.kind, job.queue, job.tags, job.priority, job.run_at, job.finalized_at,
        CASE WHEN %(ended)s::text IS NOT NULL THEN job.errors[cardinality(job.errors)] END AS newest
    FROM awa.jobs_hot AS job
    WHERE job.id = ANY (%(job_ids)s::bigint[])
      AND coalesce(job.state = ANY (%(states)s::awa.job_state[]), true)
    ORDER BY job.id
    FOR UPDATE
),
deferred AS MATERIALIZED (
    SELECT
        job.id, job.kind, job.queue, job.tags, job.priority, job.run_at, job.finalized_at,
        CASE WHEN %(ended)s::text IS NOT NULL THEN job.errors[cardinality(job.errors)] END AS newest
    FROM awa.scheduled_jobs AS job
    WHERE job.id = ANY (%(job_ids)s::bigint[])
      AND coalesce(job.state = ANY (%(states)s::awa.job_state[]), true)
    ORDER BY job.id
    FOR UPDATE
)
SELECT job.id
FROM (SELECT hot.* FROM hot UNION ALL SELECT deferred.* FROM deferred) AS job
WHERE coalesce(job.kind = %(kind)s::text, true)
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
ORDER BY job.id
