-- Empty every table but the schema's version and the duties of the leader.
TRUNCATE
    awa.jobs_hot,
    awa.scheduled_jobs,
    awa.job_unique_claims,
    awa.queue_meta,
    awa.cron_jobs,
    awa.runtime_instances,
    awa.job_kinds,
    awa.queue_stats,
    awa.queue_stats_deltas,
    awa.queue_totals,
    awa.waiters
