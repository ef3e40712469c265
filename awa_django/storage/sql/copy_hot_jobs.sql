-- Many jobs that may run now, with ids of reserve_ids, and claims of take_unique_keys where unique.
COPY awa.jobs_hot (
    id, kind, queue, args, priority, max_attempts, metadata, tags, run_at, unique_states, unique_key
)
FROM STDIN
