-- What a worker asks of a session that was just opened: the isolation that its transactions begin with, and
-- which process answers (behind a pooler not the one that the session was told).
SELECT current_setting('default_transaction_isolation'), pg_backend_pid()
