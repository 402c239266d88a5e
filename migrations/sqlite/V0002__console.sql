-- The console: who is signed in, and accounts that were deleted.

CREATE TABLE sessions (
    token_hash   BLOB PRIMARY KEY NOT NULL CHECK (length(token_hash) = 32),   -- SHA-256 of the browser's token
    account_id   INTEGER NOT NULL REFERENCES accounts (id),
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL          -- to the minute
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_account ON sessions (account_id);

-- A deleted account keeps its row, since keys and messages point to it, but neither address nor password.
ALTER TABLE accounts ADD COLUMN deleted_at INTEGER;
