-- Lock running rows whose worker is silent or whose deadline has passed.
-- Params: stale_after (seconds without a heartbeat), batch.
-- Index: jobs_hot_running (only running rows are in it).
-- A heartbeat that is null is stale at once: it is never older than anything.
SELECT
    job.id,
    job.run_lease,
    job.kind,
    job.queue,
    job.attempt,
    job.max_attempts,
    CASE WHEN job.metadata <> '{}' THEN job.metadata::text END,
    job.worker,
    CASE WHEN job.deadline_at < now() THEN 'deadline' ELSE 'heartbeat' END
FROM awa.jobs_hot AS job
WHERE job.state = 'running'
  AND (
      job.heartbeat_at IS NULL
      OR job.heartbeat_at < now() - make_interval(secs => %(stale_after)s::double precision)
      OR job.deadline_at < now()
  )
ORDER BY job.id
LIMIT %(batch)s::integer
FOR UPDATE SKIP LOCKED
