-- For the rest of the open transaction: join tables as wholes. Statistics of a drained table say that it is
-- empty, and a nested loop over two tables that are not takes the product of their rows.
SELECT set_config('enable_nestloop', 'off', true), set_config('jit', 'off', true)
