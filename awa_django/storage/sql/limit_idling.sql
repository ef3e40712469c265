-- Let the open transaction wait at most so long for its client; then its session is ended.
-- Params: milliseconds.
SELECT set_config('idle_in_transaction_session_timeout', (%(milliseconds)s::integer)::text || 'ms', true)
