-- Whether this server only repeats what another one writes.
SELECT pg_is_in_recovery()
