-- The next hot jobs in id order that have not ended and match.
-- Params: kind, queue (null: any), tags (all of them; null: any), after_id, highest_id, batch.
-- Index: jobs_hot_pkey, from where the last batch ended.
SELECT job.id
FROM awa.jobs_hot AS job
WHERE job.id > %(after_id)s::bigint
  AND job.id <= %(highest_id)s::bigint
  AND job.state IN ('available', 'running', 'waiting_external')
  AND (%(kind)s::text IS NULL OR job.kind = %(kind)s::text)
  AND (%(queue)s::text IS NULL OR job.queue = %(queue)s::text)
  AND (%(tags)s::text[] IS NULL OR job.tags @> %(tags)s::text[])
ORDER BY job.id
LIMIT %(batch)s::integer
