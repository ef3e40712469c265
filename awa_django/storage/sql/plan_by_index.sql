-- For the rest of the open transaction, or for the session: read rows one by one, in the order of an index.
-- A table of a few pages would be scanned, and its rows come in the order of its heap. JIT: see plan_in_order.
-- Params: is_local (whether for the transaction only).
SELECT
    set_config('enable_seqscan', 'off', %(is_local)s::boolean),
    set_config('enable_bitmapscan', 'off', %(is_local)s::boolean),
    set_config('jit', 'off', %(is_local)s::boolean)
