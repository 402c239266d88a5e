-- The answers that are kept for 24 hours, for requests that come again with the same Idempotency-Key.
CREATE TABLE idempotency_records (
    -- SHA-256 of the account, the operation's name and the key.
    key_hash    bytea PRIMARY KEY CHECK (octet_length(key_hash) = 32),
    account_id  bigint NOT NULL REFERENCES accounts (id),
    -- SHA-256 of the path and the body.
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    expires_at  bigint NOT NULL,
    -- The answer.
    status      smallint NOT NULL,
    location    text,
    body        bytea NOT NULL
);

-- By which those that have expired are found and deleted.
CREATE INDEX idempotency_records_by_expiry ON idempotency_records (expires_at);

-- Programs of before know nothing of it, and need not.
UPDATE meta SET value = '1' WHERE key = 'oldest_schema';
