-- As vacuum_hot, for the head of the due index.
VACUUM (SKIP_LOCKED, TRUNCATE off, INDEX_CLEANUP on, PROCESS_TOAST off) awa.scheduled_jobs
