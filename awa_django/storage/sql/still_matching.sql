-- Lock those of the jobs that still match, wherever they are now: their ids in order.
-- Params: job_ids; states, kind, queue, tags, ended, except_kind, except_queue, except_priority as in matching_hot;
--   highest_id is not asked for again.
-- Index: jobs_hot_pkey, scheduled_jobs_pkey: no other one serves a condition within coalesce, however few rows
-- statistics say there are.
WITH hot AS MATERIALIZED (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.id = ANY (%(job_ids)s::bigint[])
      AND coalesce(job.state = ANY (%(states)s::awa.job_state[]), true)
      AND coalesce(job.kind = %(kind)s::text, true)
      AND coalesce(job.queue = %(queue)s::text, true)
      AND coalesce(job.tags @> %(tags)s::text[], true)
      AND coalesce(job.errors[cardinality(job.errors)] ->> 'outcome' = %(ended)s::text, %(ended)s::text IS NULL)
      AND coalesce(job.kind <> %(except_kind)s::text, true)
      AND coalesce(job.queue <> %(except_queue)s::text, true)
      AND coalesce(job.priority <> %(except_priority)s::smallint, true)
    ORDER BY job.id
    FOR UPDATE
),
deferred AS MATERIALIZED (
    SELECT job.id
    FROM awa.scheduled_jobs AS job
    WHERE job.id = ANY (%(job_ids)s::bigint[])
      AND coalesce(job.state = ANY (%(states)s::awa.job_state[]), true)
      AND coalesce(job.kind = %(kind)s::text, true)
      AND coalesce(job.queue = %(queue)s::text, true)
      AND coalesce(job.tags @> %(tags)s::text[], true)
      AND coalesce(job.errors[cardinality(job.errors)] ->> 'outcome' = %(ended)s::text, %(ended)s::text IS NULL)
      AND coalesce(job.kind <> %(except_kind)s::text, true)
      AND coalesce(job.queue <> %(except_queue)s::text, true)
      AND coalesce(job.priority <> %(except_priority)s::smallint, true)
    ORDER BY job.id
    FOR UPDATE
)
SELECT hot.id FROM hot
UNION ALL
SELECT deferred.id FROM deferred
ORDER BY id
