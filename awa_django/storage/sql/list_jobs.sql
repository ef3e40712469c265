-- Look through jobs of both tables from the newest id down, for those that match: how far it has looked (null: to
-- the end), and the newest that match with an id from there on; one row without a job when there are none.
-- Params: before_id, row_count (looked at, of each kind below), row_limit (jobs),
--   in_hot (whether all hot jobs are looked through), in_running, in_deferred, rare_states (of failed, cancelled and
--   waiting_external; each is looked through apart), states (null: any), kind, queue, tags (all of them; null: any).
-- Index: jobs_hot_pkey, jobs_hot_attention, jobs_hot_running, scheduled_jobs_pkey, each backwards from before_id.
-- The rows are bounded and not the matches: where few match, those would be looked for through the whole table.
-- Of deferred jobs scheduled_jobs_kind_due or scheduled_jobs_queue_due says first whether so few have the kind or
-- the queue (bounded from both sides, so that no other index has this order) that all of them are looked at.
WITH hot AS MATERIALIZED (
    SELECT job.id, job.state, job.kind, job.queue, job.tags
    FROM awa.jobs_hot AS job
    WHERE %(in_hot)s::boolean
      AND job.id < %(before_id)s::bigint
    ORDER BY job.id DESC
    LIMIT %(row_count)s::integer
),
rare AS MATERIALIZED (
    SELECT looked_at.*
    FROM unnest(%(rare_states)s::text[]::awa.job_state[]) AS wanted (state)
    CROSS JOIN LATERAL (
        SELECT job.id, job.state, job.kind, job.queue, job.tags
        FROM awa.jobs_hot AS job
        WHERE job.state = wanted.state
          AND job.state IN ('failed', 'cancelled', 'waiting_external')
          AND job.id < %(before_id)s::bigint
        ORDER BY job.id DESC
        LIMIT %(row_count)s::integer
    ) AS looked_at
),
running AS MATERIALIZED (
    SELECT job.id, job.state, job.kind, job.queue, job.tags
    FROM awa.jobs_hot AS job
    WHERE %(in_running)s::boolean
      AND job.state = 'running'
      AND job.id < %(before_id)s::bigint
    ORDER BY job.id DESC
    LIMIT %(row_count)s::integer
),
candidate AS MATERIALIZED (
    (
        SELECT job.id
        FROM awa.scheduled_jobs AS job
        WHERE %(in_deferred)s::boolean
          AND job.kind >= %(kind)s::text
          AND job.kind <= %(kind)s::text
        ORDER BY job.kind, job.run_at, job.id
        LIMIT %(row_count)s::integer
    )
    UNION ALL
    (
        SELECT job.id
        FROM awa.scheduled_jobs AS job
        WHERE %(in_deferred)s::boolean
          AND %(kind)s::text IS NULL
          AND job.queue >= %(queue)s::text
          AND job.queue <= %(queue)s::text
        ORDER BY job.queue, job.run_at, job.id
        LIMIT %(row_count)s::integer
    )
),
narrow AS MATERIALIZED (
    SELECT count(*) < %(row_count)s::integer AND coalesce(%(kind)s::text, %(queue)s::text) IS NOT NULL AS is_few
    FROM candidate
),
few AS MATERIALIZED (
    SELECT job.id, job.state, job.kind, job.queue, job.tags
    FROM awa.scheduled_jobs AS job
    WHERE job.id = ANY (ARRAY(SELECT candidate.id FROM candidate WHERE (SELECT narrow.is_few FROM narrow)))
      AND job.id < %(before_id)s::bigint
),
deferred AS MATERIALIZED (
    SELECT job.id, job.state, job.kind, job.queue, job.tags
    FROM awa.scheduled_jobs AS job
    WHERE %(in_deferred)s::boolean
      AND NOT (SELECT narrow.is_few FROM narrow)
      AND job.id < %(before_id)s::bigint
    ORDER BY job.id DESC
    LIMIT %(row_count)s::integer
),
looked_to AS MATERIALIZED (
    SELECT max(looked.lowest_id) AS id
    FROM (
        SELECT min(hot.id) FROM hot HAVING count(*) >= %(row_count)s::integer
        UNION ALL
        SELECT min(rare.id) FROM rare GROUP BY rare.state HAVING count(*) >= %(row_count)s::integer
        UNION ALL
        SELECT min(running.id) FROM running HAVING count(*) >= %(row_count)s::integer
        UNION ALL
        SELECT min(deferred.id) FROM deferred HAVING count(*) >= %(row_count)s::integer
    ) AS looked (lowest_id)
),
found AS MATERIALIZED (
    SELECT job.id
    FROM (
        SELECT * FROM hot
        UNION ALL
        SELECT * FROM rare
        UNION ALL
        SELECT * FROM running
        UNION ALL
        SELECT * FROM few
        UNION ALL
        SELECT * FROM deferred
    ) AS job
    WHERE job.id >= coalesce((SELECT looked_to.id FROM looked_to), 0)
      AND (%(states)s::text[] IS NULL OR job.state = ANY (%(states)s::text[]::awa.job_state[]))
      AND (%(kind)s::text IS NULL OR job.kind = %(kind)s::text)
      AND (%(queue)s::text IS NULL OR job.queue = %(queue)s::text)
      AND (%(tags)s::text[] IS NULL OR job.tags @> %(tags)s::text[])
    ORDER BY job.id DESC
    LIMIT %(row_limit)s::integer
)
SELECT
    looked_to.id,
    job.id,
    job.state::text,
    job.kind,
    job.queue,
    job.priority,
    job.attempt,
    job.max_attempts,
    job.run_at,
    job.created_at,
    job.attempted_at,
    job.finalized_at,
    job.tags
FROM looked_to
LEFT JOIN (
    SELECT
        hot_job.id, hot_job.state, hot_job.kind, hot_job.queue, hot_job.priority, hot_job.attempt,
        hot_job.max_attempts, hot_job.run_at, hot_job.created_at, hot_job.attempted_at, hot_job.finalized_at,
        hot_job.tags
    FROM awa.jobs_hot AS hot_job
    WHERE hot_job.id = ANY (ARRAY(SELECT found.id FROM found))
    UNION ALL
    SELECT
        later_job.id, later_job.state, later_job.kind, later_job.queue, later_job.priority, later_job.attempt,
        later_job.max_attempts, later_job.run_at, later_job.created_at, later_job.attempted_at,
        later_job.finalized_at, later_job.tags
    FROM awa.scheduled_jobs AS later_job
    WHERE later_job.id = ANY (ARRAY(SELECT found.id FROM found))
) AS job ON true
ORDER BY job.id DESC
