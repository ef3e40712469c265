-- Dead entries at the head of the claim index go only by VACUUM, and autovacuum comes once a minute.
-- Outside of any transaction. Index clean-up is on: it is the point. No waiting for a lock.
VACUUM (SKIP_LOCKED, TRUNCATE off, INDEX_CLEANUP on, PROCESS_TOAST off) awa.jobs_hot
