-- The next relay creates it again, ordered by account (`src/store/sqlite/outbox.rs`).
DROP INDEX IF EXISTS messages_by_sending;
