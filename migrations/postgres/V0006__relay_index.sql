-- The relay's index: messages that wait, oldest first, and those that were sent, by time. It used to be created by the
-- first relay of a database, which therefore had to own the table. A relay that was stopped in the middle of that left an
-- invalid index.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('messages_by_sending') AND NOT indisvalid) THEN
        DROP INDEX messages_by_sending;
    END IF;
END
$$;
CREATE INDEX IF NOT EXISTS messages_by_sending ON messages (sent_at, id);

-- Older programs find the index and use it.
UPDATE meta SET value = '1' WHERE key = 'oldest_schema';
