-- Messages that left the queue: when a broker acknowledged them (`--relay`). NULL: it waits.
ALTER TABLE messages ADD COLUMN sent_at bigint;

-- The index by which those that wait are found is not made here but by the first relay (`src/store/postgres/outbox.rs`):
-- it would be a second place to write for every message, also where none ever leaves.

-- Programs of before leave the column empty: what they take on waits, and is relayed by a program that knows how.
UPDATE meta SET value = '1' WHERE key = 'oldest_schema';
