-- The answers that are kept for 24 hours, for requests that come again with the same Idempotency-Key.
CREATE TABLE idempotency_records (
    -- SHA-256 of the account, the operation's name and the key.
    key_hash    BLOB PRIMARY KEY NOT NULL CHECK (length(key_hash) = 32),
    account_id  INTEGER NOT NULL REFERENCES accounts (id),
    -- SHA-256 of the path and the body.
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    expires_at  INTEGER NOT NULL,
    -- The answer.
    status      INTEGER NOT NULL,
    location    TEXT,
    body        BLOB NOT NULL
) STRICT;

-- By which those that have expired are found and deleted.
CREATE INDEX idempotency_records_by_expiry ON idempotency_records (expires_at);
