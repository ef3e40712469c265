-- Delete one batch of ended jobs that are past their retention; returns where to go on.
-- Params: cursor (finalized_at up to which the pass has looked; null: from the start), min_age (the
--   shortest retention in seconds), states, queues, ages (parallel arrays: the retention in seconds of
--   a state in a queue; queue null: of every queue not named), kinds, kind_ages (parallel arrays: kinds that are
--   kept for longer, in seconds), batch (rows looked at, ties included).
-- Index: jobs_hot_finalized for the choice; the delete goes by ctid, as in promote.sql.
-- Rows with a longer retention are passed over once a pass: the cursor never looks back.
WITH examined AS MATERIALIZED (
    SELECT job.ctid, job.queue, job.kind, job.state, job.finalized_at
    FROM awa.jobs_hot AS job
    WHERE job.finalized_at > coalesce(%(cursor)s::timestamptz, '-infinity')
      AND job.finalized_at < now() - make_interval(secs => %(min_age)s::double precision)
    ORDER BY job.finalized_at
    FETCH FIRST (%(batch)s::integer) ROWS WITH TIES
),
retention AS (
    SELECT entry.state::awa.job_state AS state, entry.queue, entry.age
    FROM unnest(%(states)s::text[], %(queues)s::text[], %(ages)s::double precision[])
        AS entry (state, queue, age)
),
expired AS MATERIALIZED (
    SELECT examined.ctid
    FROM examined
    WHERE examined.finalized_at < now() - make_interval(secs => coalesce(
        (
            SELECT retention.age
            FROM retention
            WHERE retention.state = examined.state AND retention.queue = examined.queue
        ),
        (
            SELECT retention.age
            FROM retention
            WHERE retention.state = examined.state AND retention.queue IS NULL
        )
    ))
      AND examined.finalized_at < now() - make_interval(secs => coalesce(
        (
            SELECT kept.age
            FROM unnest(%(kinds)s::text[], %(kind_ages)s::double precision[]) AS kept (kind, age)
            WHERE kept.kind = examined.kind
        ),
        0
    ))
),
pruned AS (
    DELETE FROM awa.jobs_hot AS job
    WHERE job.ctid = ANY (ARRAY(SELECT expired.ctid FROM expired))
      -- Not retried meanwhile, nor ended again since.
      AND job.finalized_at < now() - make_interval(secs => %(min_age)s::double precision)
    RETURNING job.id
)
SELECT
    (SELECT max(examined.finalized_at) FROM examined),
    (SELECT count(*) FROM examined),
    (SELECT count(*) FROM pruned)
