-- For a session that is nobody else's: no plan is kept, and none is compiled (JIT), which takes longer than
-- any statement here: a plan that cannot do without what a role has switched off counts as endlessly costly.
SELECT
    set_config('plan_cache_mode', 'force_custom_plan', false),
    set_config('jit', 'off', false)
