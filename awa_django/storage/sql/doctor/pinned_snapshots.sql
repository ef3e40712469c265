-- Sessions, prepared transactions and replication slots that keep dead rows from being removed.
-- Params: older_than (seconds).
WITH found (subject) AS (
    SELECT format(
        'pid %%s (%%s, %%s, since %%s)',
        session.pid, session.usename, session.application_name, session.xact_start
    )
    FROM pg_stat_activity AS session
    WHERE session.datname = current_database()
      AND session.pid <> pg_backend_pid()
      AND coalesce(session.backend_xmin, session.backend_xid) IS NOT NULL
      AND session.xact_start < now() - make_interval(secs => %(older_than)s::double precision)
    UNION ALL
    SELECT format('prepared transaction %%s (since %%s)', prepared.gid, prepared.prepared)
    FROM pg_prepared_xacts AS prepared
    WHERE prepared.database = current_database()
      AND prepared.prepared < now() - make_interval(secs => %(older_than)s::double precision)
    UNION ALL
    SELECT format('replication slot %%s, not in use', slot.slot_name)
    FROM pg_replication_slots AS slot
    WHERE NOT slot.active
      AND (slot.xmin IS NOT NULL OR slot.catalog_xmin IS NOT NULL)
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
