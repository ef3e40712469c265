-- Of the jobs with the newest ids, the first of each queue and priority that is before its place, or has none; and,
-- in a last row, the highest id that was given out.
-- Params: newer_than (beyond which id; null: none), queues, priorities, run_ats, ids (parallel arrays: the last row
--   of each queue and priority that was claimed; no other queue counts), excluded_kinds.
-- Index: jobs_hot_pkey, the ids beyond that; state::text hides the index of available rows from the planner, which
-- would walk over their dead entries. MATERIALIZED, the walk is made once for all queues.
WITH newest AS MATERIALIZED (
    SELECT job.queue, job.priority, job.run_at, job.id
    FROM awa.jobs_hot AS job
    WHERE job.id > %(newer_than)s::bigint
      AND job.state::text = 'available'
      AND job.queue = ANY (%(queues)s::text[])
      AND job.run_at <= now()
      AND job.kind <> ALL (%(excluded_kinds)s::text[])
),
found AS (
    SELECT DISTINCT ON (newest.queue, newest.priority)
        newest.queue, newest.priority, newest.run_at, newest.id
    FROM newest
    LEFT JOIN unnest(
        %(queues)s::text[],
        %(priorities)s::smallint[],
        %(run_ats)s::timestamptz[],
        %(ids)s::bigint[]
    ) AS place (queue, priority, run_at, id)
        ON place.queue = newest.queue AND place.priority = newest.priority
    WHERE place.priority IS NULL
       OR (newest.run_at, newest.id) < (place.run_at, place.id)
    ORDER BY newest.queue, newest.priority, newest.run_at, newest.id
)
SELECT found.queue, found.priority, found.run_at, found.id
FROM found
UNION ALL
SELECT NULL, NULL, NULL, coalesce(pg_sequence_last_value('awa.jobs_id_seq'::regclass), 0)
