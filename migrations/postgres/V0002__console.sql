-- The console: who is signed in, and accounts that were deleted.

CREATE TABLE sessions (
    token_hash   bytea PRIMARY KEY CHECK (octet_length(token_hash) = 32),   -- SHA-256 of the browser's token
    account_id   bigint NOT NULL REFERENCES accounts (id),
    created_at   bigint NOT NULL,
    last_used_at bigint NOT NULL           -- to the minute
);

CREATE INDEX sessions_by_account ON sessions (account_id);

-- A deleted account keeps its row, since keys and messages point to it, but neither address nor password.
ALTER TABLE accounts ADD COLUMN deleted_at bigint;

-- Programs of before know neither, and need not.
UPDATE meta SET value = '1' WHERE key = 'oldest_schema';
