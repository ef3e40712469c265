-- Hot jobs numbered %(first)s to %(last)s of %(total)s: what a queue looks like that keeps its completed jobs.
-- In 1,000: 12 failed and 5 cancelled; the newest 20,000 wait, and the newest 200 before them run.
-- The kind, queue and tag "rare" are those of ten jobs each, among the very oldest: where a list in the
-- order of ids looks last.
INSERT INTO awa.jobs_hot (
    kind, queue, args, state, priority, attempt, max_attempts, run_at, heartbeat_at, deadline_at, attempted_at,
    finalized_at, created_at, errors, tags, unique_key, unique_states, run_lease, worker
)
SELECT
    CASE
        WHEN number <= 10 THEN 'size.rare'
        ELSE (ARRAY['shop.send_receipt', 'shop.resize_image', 'billing.charge', 'mail.digest', 'search.index'])[
            1 + number %% 5
        ]
    END,
    CASE
        WHEN number BETWEEN 11 AND 20 THEN 'size-rare'
        ELSE (ARRAY['default', 'mail', 'images', 'billing', 'bulk', 'search', 'reports'])[1 + number %% 7]
    END,
    jsonb_build_object('order_id', number, 'to', 'customer-' || number %% 100000 || '@example.org'),
    state.name::awa.job_state,
    1 + number %% 4,
    CASE state.name WHEN 'available' THEN 0 WHEN 'failed' THEN 5 ELSE 1 END,
    5,
    created.at,
    CASE WHEN state.name = 'running' THEN now() END,
    CASE WHEN state.name = 'running' THEN now() + interval '1 day' END,
    CASE WHEN state.name <> 'available' THEN created.at + interval '1 s' END,
    CASE WHEN state.name IN ('completed', 'failed', 'cancelled') THEN created.at + interval '2 s' END,
    created.at,
    CASE state.name
        WHEN 'failed' THEN ARRAY[
            jsonb_build_object(
                'error', 'the gateway did not answer', 'class', 'TimeoutError', 'attempt', 5, 'at', created.at,
                'outcome', (ARRAY['failed', 'timed_out', 'rescued'])[1 + number %% 3],
                'traceback', repeat(E'  File "shop/gateway.py", line 17, in charge\n', 20)
            )
        ]
        WHEN 'cancelled' THEN ARRAY[
            jsonb_build_object('error', 'cancelled', 'outcome', 'cancelled', 'by', 'ann', 'at', created.at)
        ]
        ELSE ARRAY[]::jsonb[]
    END,
    CASE
        WHEN number BETWEEN 21 AND 30 THEN ARRAY['rare']
        WHEN number %% 10 = 0 THEN ARRAY['customer-' || number %% 1000]
        ELSE ARRAY[]::text[]
    END,
    CASE WHEN state.name = 'available' AND number %% 2 = 0 THEN decode(md5('hot ' || number), 'hex') END,
    CASE WHEN state.name = 'available' AND number %% 2 = 0 THEN B'11101001' END,
    CASE WHEN state.name = 'available' THEN 0 ELSE 1 END,
    CASE WHEN state.name <> 'available' THEN 'worker-' || number %% 8 END
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS number
CROSS JOIN LATERAL (
    SELECT now() - (%(total)s - number) * interval '20 ms'
) AS created (at)
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN number > %(total)s - 20000 AND number > %(total)s * 0.9 THEN 'available'
        WHEN number > %(total)s - 20200 AND number > %(total)s * 0.9 THEN 'running'
        WHEN number %% 1000 < 12 THEN 'failed'
        WHEN number %% 1000 < 17 THEN 'cancelled'
        ELSE 'completed'
    END
) AS state (name)
