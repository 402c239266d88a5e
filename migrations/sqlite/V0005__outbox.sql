-- Messages that left the queue: when a broker acknowledged them (`--relay`). NULL: it waits.
ALTER TABLE messages ADD COLUMN sent_at INTEGER;

-- The index by which those that wait are found is not made here but by the first relay (`src/store/sqlite/outbox.rs`):
-- it would be a second place to write for every message, also where none ever leaves.
