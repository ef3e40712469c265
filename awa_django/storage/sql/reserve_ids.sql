-- Take ids from the sequence of jobs; the database's clock comes with them.
-- Params: count.
SELECT now(), array_agg(nextval('awa.jobs_id_seq'))
FROM generate_series(1, %(count)s::integer)
