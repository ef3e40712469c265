-- The failed jobs that are kept, by queue, among the newest ones up to a cap.
-- Params: cap.
-- Index: jobs_hot_attention: its predicate is repeated, and the order is one that the primary key, which
-- has the newest rows first too but of every state, does not give.
SELECT failed.queue, count(*)
FROM (
    SELECT job.queue
    FROM awa.jobs_hot AS job
    WHERE job.state IN ('failed', 'cancelled', 'waiting_external')
      AND job.state >= 'failed'
      AND job.state <= 'failed'
    ORDER BY job.state DESC, job.id DESC
    LIMIT %(cap)s::integer
) AS failed
GROUP BY failed.queue
