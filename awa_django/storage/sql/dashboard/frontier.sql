-- How many deferred jobs are due in each span from now, counted to a cap each.
-- Params: starts, ends (parallel arrays: seconds from now; null is without end), cap.
-- Index: scheduled_jobs_due. It reads `state`, which is always one of these two (see next_due.sql).
SELECT counted.count
FROM unnest(
    %(starts)s::double precision[],
    %(ends)s::double precision[]
) WITH ORDINALITY AS span (start, finish, place)
CROSS JOIN LATERAL (
    SELECT count(*)
    FROM (
        SELECT FROM awa.scheduled_jobs AS job
        WHERE job.state IN ('scheduled', 'retryable')
          AND job.run_at >= coalesce(now() + make_interval(secs => span.start), '-infinity')
          AND job.run_at < coalesce(now() + make_interval(secs => span.finish), 'infinity')
        ORDER BY job.run_at, job.id
        LIMIT %(cap)s::integer
    ) AS capped
) AS counted
ORDER BY span.place
