-- Deferred jobs numbered %(first)s to %(last)s of %(total)s: due over thirty days, in no order of their ids, one
-- in twenty for a retry.
-- The kind, queue and tag "rare" are those of ten jobs each that are due last.
INSERT INTO awa.scheduled_jobs (
    kind, queue, args, state, priority, attempt, max_attempts, run_at, attempted_at, errors, tags, unique_key,
    unique_states, run_lease
)
SELECT
    CASE
        WHEN number <= 10 THEN 'size.rare'
        ELSE (ARRAY['shop.remind', 'billing.renew', 'mail.digest', 'crm.follow_up'])[1 + number %% 4]
    END,
    CASE
        WHEN number BETWEEN 11 AND 20 THEN 'size-rare'
        ELSE (ARRAY['default', 'mail', 'billing', 'bulk', 'reports'])[1 + number %% 5]
    END,
    jsonb_build_object('customer_id', number),
    CASE WHEN retries.yes THEN 'retryable' ELSE 'scheduled' END::awa.job_state,
    1 + number %% 4,
    CASE WHEN retries.yes THEN 2 ELSE 0 END,
    25,
    CASE
        WHEN number <= 30 THEN now() + interval '31 days'
        ELSE now() + interval '1 hour' + (number * 7919 %% 2592000) * interval '1 s'
    END,
    CASE WHEN retries.yes THEN now() END,
    CASE
        WHEN retries.yes THEN ARRAY[
            jsonb_build_object('error', 'busy', 'class', 'OSError', 'attempt', 2, 'at', now(), 'outcome', 'retried')
        ]
        ELSE ARRAY[]::jsonb[]
    END,
    CASE
        WHEN number BETWEEN 21 AND 30 THEN ARRAY['rare']
        WHEN number %% 10 = 0 THEN ARRAY['customer-' || number %% 1000]
        ELSE ARRAY[]::text[]
    END,
    CASE WHEN number %% 50 = 0 THEN decode(md5('deferred ' || number), 'hex') END,
    CASE WHEN number %% 50 = 0 THEN B'11101001' END,
    CASE WHEN retries.yes THEN 2 ELSE 0 END
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS number
CROSS JOIN LATERAL (SELECT number %% 20 = 7) AS retries (yes)
