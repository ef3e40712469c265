-- How many deferred jobs are due in each span from now, counted to a cap each.
-- Params: starts, ends (parallel arrays: seconds from now; null is without end), cap.
-- Index: scheduled_jobs_due, and that alone where VACUUM has been: rows are named by pairs of (run_at, id),
-- the order of no other index.
SELECT counted.count
FROM unnest(
    %(starts)s::double precision[],
    %(ends)s::double precision[]
) WITH ORDINALITY AS span (start, finish, place)
CROSS JOIN LATERAL (
    SELECT count(*)
    FROM (
        SELECT FROM awa.scheduled_jobs AS job
        WHERE (job.run_at, job.id) > (
            coalesce(now() + make_interval(secs => span.start), '-infinity'), 0::bigint
        )
          AND (job.run_at, job.id) < (
              coalesce(now() + make_interval(secs => span.finish), 'infinity'), 0::bigint
          )
        ORDER BY job.run_at, job.id
        LIMIT %(cap)s::integer
    ) AS capped
) AS counted
ORDER BY span.place
