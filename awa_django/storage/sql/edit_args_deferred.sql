-- An operator gives a deferred job other arguments. Its unique key stays: who calls this
-- has made sure that it is not made of what changes.
-- Params: job_id; args, seen_args (JSON text: what is written, and what must still be there).
-- Index: scheduled_jobs_pkey.
UPDATE awa.scheduled_jobs AS job
SET args = %(args)s::jsonb
WHERE job.id = %(job_id)s::bigint
  AND job.args = %(seen_args)s::jsonb
RETURNING job.id
