-- What the migrations make and is missing, switched off or invalid; only catalogues are read.
WITH relations (name) AS (
    VALUES
        ('schema_version'), ('jobs_id_seq'), ('jobs_hot'), ('scheduled_jobs'), ('jobs'),
        ('job_unique_claims'), ('queue_meta'), ('cron_jobs'), ('runtime_instances'), ('leaders'),
        ('job_kinds'), ('queue_stats'), ('queue_stats_deltas'), ('queue_totals'), ('waiters')
),
indexes (name) AS (
    VALUES
        ('jobs_hot_pkey'), ('jobs_hot_claim'), ('jobs_hot_running'), ('jobs_hot_finalized'),
        ('jobs_hot_attention'), ('scheduled_jobs_pkey'), ('scheduled_jobs_due'),
        ('scheduled_jobs_kind_due'), ('scheduled_jobs_queue_due'), ('idx_awa_jobs_unique'),
        ('schema_version_pkey'), ('queue_meta_pkey'), ('cron_jobs_pkey'), ('runtime_instances_pkey'),
        ('leaders_pkey'), ('job_kinds_pkey'), ('queue_stats_pkey'), ('queue_totals_pkey'),
        ('waiters_pkey')
),
triggers (relation, name) AS (
    VALUES
        ('jobs', 'insert_job'), ('jobs', 'update_job'), ('jobs', 'delete_job'),
        ('jobs_hot', 'unique_claim_insert'), ('jobs_hot', 'unique_claim_update'),
        ('jobs_hot', 'unique_claim_delete'), ('jobs_hot', 'unique_claim_truncate'),
        ('scheduled_jobs', 'unique_claim_insert'), ('scheduled_jobs', 'unique_claim_update'),
        ('scheduled_jobs', 'unique_claim_delete'), ('scheduled_jobs', 'unique_claim_truncate')
),
functions (name) AS (
    VALUES
        ('holds_unique_key'), ('take_unique_key'), ('keep_unique_claim_on_insert'),
        ('keep_unique_claim_on_update'), ('drop_unique_claim_on_delete'),
        ('drop_unique_claims_on_truncate'), ('wake'), ('insert_job_through_view'),
        ('update_job_through_view'), ('delete_job_through_view')
),
checks (relation, name) AS (
    SELECT job_table.name, job_check.name
    FROM (VALUES ('jobs_hot'), ('scheduled_jobs')) AS job_table (name)
    CROSS JOIN (
        VALUES
            ('jobs_kind_length'), ('jobs_queue_length'), ('jobs_args_object'), ('jobs_metadata_object'),
            ('jobs_priority_range'), ('jobs_max_attempts_range'), ('jobs_attempt_range'),
            ('jobs_run_lease_range'), ('jobs_tags_count'), ('jobs_unique_key_length'),
            ('jobs_terminal_finalized'), ('jobs_timestamps_range')
    ) AS job_check (name)
    UNION ALL
    VALUES ('jobs_hot', 'jobs_hot_states'), ('scheduled_jobs', 'scheduled_jobs_states')
),
found (subject) AS (
    SELECT format('relation awa.%%s', expected.name)
    FROM relations AS expected
    WHERE to_regclass('awa.' || expected.name) IS NULL
    UNION ALL
    SELECT format('index awa.%%s', expected.name)
    FROM indexes AS expected
    WHERE NOT EXISTS (
        SELECT FROM pg_index AS index
        WHERE index.indexrelid = to_regclass('awa.' || expected.name) AND index.indisvalid
    )
    UNION ALL
    SELECT format('trigger %%s of awa.%%s', expected.name, expected.relation)
    FROM triggers AS expected
    WHERE NOT EXISTS (
        SELECT FROM pg_trigger AS trigger
        WHERE trigger.tgrelid = to_regclass('awa.' || expected.relation)
          AND trigger.tgname = expected.name
          AND trigger.tgenabled IN ('O', 'A')
    )
    UNION ALL
    SELECT format('function awa.%%s', expected.name)
    FROM functions AS expected
    WHERE to_regproc('awa.' || expected.name) IS NULL
    UNION ALL
    SELECT format('check %%s of awa.%%s', expected.name, expected.relation)
    FROM checks AS expected
    WHERE NOT EXISTS (
        SELECT FROM pg_constraint AS job_check
        WHERE job_check.conrelid = to_regclass('awa.' || expected.relation)
          AND job_check.conname = expected.name
          AND job_check.convalidated
    )
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject FROM found ORDER BY found.subject LIMIT 20)
