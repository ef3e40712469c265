-- What this role lacks of the rights asked for: for each table the statement that gives it.
-- Params: tables, privileges (parallel arrays: each pair one right).
-- A table that is not there is no longer needed, or is told of by the look at the schema's version.
-- A right to some columns counts: who gives no more may have given enough.
SELECT format('GRANT %%s ON %%s TO %%I', string_agg(needed.privilege, ', ' ORDER BY number), needed.name, current_user)
FROM unnest(%(tables)s::text[], %(privileges)s::text[]) WITH ORDINALITY AS needed (name, privilege, number)
WHERE NOT CASE
    WHEN needed.privilege = 'DELETE' THEN has_table_privilege(to_regclass(needed.name)::oid, needed.privilege)
    ELSE has_any_column_privilege(to_regclass(needed.name)::oid, needed.privilege)
END
GROUP BY needed.name
ORDER BY min(number)
