-- The database's clock, as the statements of this transaction see it.
SELECT now()
