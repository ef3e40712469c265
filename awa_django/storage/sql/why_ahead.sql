-- How many available jobs of a queue a claim takes before a given one, counted to a cap.
-- Params: queue; priority, run_at, job_id (its place in the order of the claim); cap (the highest count).
-- Index: jobs_hot_claim, one ordered scan that ends at the place.
SELECT count(*)
FROM (
    SELECT
    FROM awa.jobs_hot AS job
    WHERE job.state = 'available'
      AND job.queue = %(queue)s::text
      AND job.run_at <= now()
      AND (job.priority, job.run_at, job.id)
          < (%(priority)s::smallint, %(run_at)s::timestamptz, %(job_id)s::bigint)
    ORDER BY job.priority, job.run_at, job.id
    LIMIT %(cap)s::integer
) AS ahead
