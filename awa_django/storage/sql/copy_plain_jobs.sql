-- Many jobs that may run now and leave the rest to the columns' defaults, with ids of reserve_ids.
COPY awa.jobs_hot (id, kind, queue, args, priority, max_attempts) FROM STDIN
