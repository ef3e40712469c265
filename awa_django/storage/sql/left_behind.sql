-- The first job of a queue before given places of its order, one of each priority; and, in a last row, how many
-- pages of the claim index were read.
-- Params: queue, priorities, run_ats, ids, since_run_ats, since_ids (parallel arrays: the last row of each priority
--   that was claimed, and behind which row of it to begin), after_priorities, before_priorities (parallel arrays:
--   between these no priority has a place), excluded_kinds.
-- Index: jobs_hot_claim, one ordered scan for each, which ends at the first row that somebody may claim.
-- Nothing is locked: a claim beside this would pass over it. The id is compared outside, or the scan would go on
-- through all rows of one instant. MATERIALIZED, places and gaps are there after the pages have been counted.
WITH before AS MATERIALIZED (
    SELECT pg_stat_get_xact_blocks_fetched('awa.jobs_hot_claim'::regclass) AS page_count
),
place AS MATERIALIZED (
    SELECT entry.priority, entry.run_at, entry.id, entry.since_run_at, entry.since_id
    FROM unnest(
        %(priorities)s::smallint[],
        %(run_ats)s::timestamptz[],
        %(ids)s::bigint[],
        %(since_run_ats)s::timestamptz[],
        %(since_ids)s::bigint[]
    ) AS entry (priority, run_at, id, since_run_at, since_id)
    CROSS JOIN before
),
gap AS MATERIALIZED (
    SELECT entry.after_priority, entry.before_priority
    FROM unnest(%(after_priorities)s::smallint[], %(before_priorities)s::smallint[])
        AS entry (after_priority, before_priority)
    CROSS JOIN before
),
found AS MATERIALIZED (
    SELECT first.priority, first.run_at, first.id
    FROM place
    CROSS JOIN LATERAL (
        SELECT job.priority, job.run_at, job.id
        FROM awa.jobs_hot AS job
        WHERE job.state = 'available'
          AND job.queue = %(queue)s::text
          AND job.priority = place.priority
          AND (job.run_at, job.id) > (place.since_run_at, place.since_id)
          AND job.run_at <= least(place.run_at, now())
          AND job.kind <> ALL (%(excluded_kinds)s::text[])
        ORDER BY job.priority, job.run_at, job.id
        LIMIT 1
    ) AS first
    WHERE (first.run_at, first.id) < (place.run_at, place.id)
    UNION ALL
    SELECT first.priority, first.run_at, first.id
    FROM gap
    CROSS JOIN LATERAL (
        SELECT job.priority, job.run_at, job.id
        FROM awa.jobs_hot AS job
        WHERE job.state = 'available'
          AND job.queue = %(queue)s::text
          AND job.priority > gap.after_priority
          AND job.priority < gap.before_priority
          AND job.run_at <= now()
          AND job.kind <> ALL (%(excluded_kinds)s::text[])
        ORDER BY job.priority, job.run_at, job.id
        LIMIT 1
    ) AS first
)
SELECT found.priority, found.run_at, found.id, NULL::bigint
FROM found
UNION ALL
SELECT
    NULL,
    NULL,
    NULL,
    pg_stat_get_xact_blocks_fetched('awa.jobs_hot_claim'::regclass) - before.page_count
FROM before
CROSS JOIN (SELECT count(*) FROM found) AS searched
