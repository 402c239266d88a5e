-- The relay's index: first the waiting messages by id, then the sent ones by time of sending. It may exist already:
-- version 5's first relay creates it, and the operator may. An interrupted `CREATE INDEX CONCURRENTLY` leaves an invalid
-- index, which is replaced. A running one must have ended before this step, or the two deadlock.
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
