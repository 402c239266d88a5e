-- From now on, ids of keys are not given out again after an account, and thus its keys, was erased. SQLite cannot add
-- AUTOINCREMENT to a table, so a new one replaces it. No table is renamed, because a view or trigger of another program would
-- prevent that.
CREATE TABLE old_keys AS SELECT * FROM api_keys;
DROP TABLE api_keys;

CREATE TABLE api_keys (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    account_id   INTEGER NOT NULL REFERENCES accounts (id),
    name         TEXT NOT NULL,
    hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),   -- SHA-256 of the key
    hint         TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    lifetime     INTEGER,                 -- as asked for, in milliseconds; NULL: for ever
    expires_at   INTEGER,                 -- created_at + lifetime, or earlier where a successor took over
    revoked_at   INTEGER,
    read_only    INTEGER NOT NULL DEFAULT 0 CHECK (read_only IN (0, 1)),
    prefer       TEXT                     -- the failures that its requests get; only on staging
) STRICT;

INSERT INTO api_keys SELECT * FROM old_keys;
DROP TABLE old_keys;
CREATE INDEX api_keys_by_account ON api_keys (account_id);
