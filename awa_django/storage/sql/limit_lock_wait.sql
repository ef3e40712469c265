-- Let the open transaction wait at most so long for a lock.
-- Params: milliseconds.
SELECT set_config('lock_timeout', (%(milliseconds)s::integer)::text || 'ms', true)
