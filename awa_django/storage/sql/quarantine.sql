-- End one available job that cannot be claimed (its row refuses the claim) as cancelled.
-- Params: job_id, entry (the error entry; `at` is added here).
-- Index: jobs_hot_pkey (`state::text` hides that of available rows, in which the id stands last).
-- The entry names no lease: it is about no run, and the last one may have an entry of its own.
-- The mask loses the bit of `cancelled`: another job may hold the key. Errors of more
-- than one dimension, to which nothing can be added, become one list.
UPDATE awa.jobs_hot AS job
SET state = 'cancelled',
    finalized_at = now(),
    unique_states = set_bit(job.unique_states, 6, 0),
    errors = ARRAY(SELECT unnest(job.errors)) || (%(entry)s::jsonb || jsonb_build_object('at', now(), 'attempt', job.attempt))
WHERE job.id = %(job_id)s::bigint
  AND job.state::text = 'available'
RETURNING job.id
