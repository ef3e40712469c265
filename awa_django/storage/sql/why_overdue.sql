-- How many deferred jobs are promoted before a given one, counted to a cap, and when the first was due.
-- Params: run_at, job_id (its place in the order of the promotion); cap (the highest count).
-- Index: scheduled_jobs_due, one ordered scan that ends at the place.
SELECT count(*), min(ahead.run_at)
FROM (
    SELECT job.run_at
    FROM awa.scheduled_jobs AS job
    WHERE job.run_at <= now()
      AND (job.run_at, job.id) < (%(run_at)s::timestamptz, %(job_id)s::bigint)
    ORDER BY job.run_at, job.id
    LIMIT %(cap)s::integer
) AS ahead
