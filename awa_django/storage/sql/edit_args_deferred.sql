-- An operator gives a deferred job other arguments. Its unique key stays: who calls this
-- has made sure that it is not made of what changes.
-- Params: job_id; args, seen_args (JSON text: what is written, and what must still be there); remembered (JSON text: a list
--   of what is added to awa:secret of the metadata, which is a list unless somebody else wrote it).
-- Index: scheduled_jobs_pkey.
UPDATE awa.scheduled_jobs AS job
SET args = %(args)s::jsonb,
    metadata = CASE
        WHEN %(remembered)s::jsonb = '[]' THEN job.metadata
        ELSE job.metadata || jsonb_build_object(
            'awa:secret', jsonb_path_query_array(job.metadata, '$."awa:secret"[*]') || %(remembered)s::jsonb
        )
    END
WHERE job.id = %(job_id)s::bigint
  AND job.args = %(seen_args)s::jsonb
RETURNING job.id
