DROP TABLE awa.queue_stats_deltas;
