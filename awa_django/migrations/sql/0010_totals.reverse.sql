DROP TABLE awa.queue_totals;
