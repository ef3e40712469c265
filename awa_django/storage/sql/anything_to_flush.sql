-- Whether flush_queue and vacate_duties would change anything: without it they lock every table.
-- Index: none, as it reads one row of each table at most.
SELECT EXISTS (SELECT FROM awa.jobs_hot)
    OR EXISTS (SELECT FROM awa.scheduled_jobs)
    OR EXISTS (SELECT FROM awa.job_unique_claims)
    OR EXISTS (SELECT FROM awa.queue_meta)
    OR EXISTS (SELECT FROM awa.cron_jobs)
    OR EXISTS (SELECT FROM awa.runtime_instances)
    OR EXISTS (SELECT FROM awa.job_kinds)
    OR EXISTS (SELECT FROM awa.queue_stats)
    OR EXISTS (SELECT FROM awa.queue_stats_deltas)
    OR EXISTS (SELECT FROM awa.queue_totals)
    OR EXISTS (SELECT FROM awa.waiters)
    OR EXISTS (SELECT FROM awa.leaders AS leader WHERE leader.holder IS NOT NULL)
