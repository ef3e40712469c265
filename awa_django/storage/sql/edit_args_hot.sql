-- An operator gives a hot job that does not run and has not completed other arguments. Its unique key stays: who calls this
-- has made sure that it is not made of what changes.
-- Params: job_id; args, seen_args (JSON text: what is written, and what must still be there).
-- Index: jobs_hot_pkey.
UPDATE awa.jobs_hot AS job
SET args = %(args)s::jsonb
WHERE job.id = %(job_id)s::bigint
  AND job.state IN ('available', 'failed', 'cancelled')
  AND job.args = %(seen_args)s::jsonb
RETURNING job.id
