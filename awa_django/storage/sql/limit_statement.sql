-- Let each statement of the open transaction take at most so many milliseconds.
-- Params: milliseconds.
SELECT set_config('statement_timeout', %(milliseconds)s::integer::text, true)
