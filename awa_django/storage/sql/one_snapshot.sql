-- Let every statement of the transaction see one snapshot; must be its first statement.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY
