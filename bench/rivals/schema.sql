-- The rivals' tables: petstore's, as far as the operations that are measured need them.
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY
) STRICT;

CREATE TABLE api_keys (
    hash       BLOB PRIMARY KEY NOT NULL CHECK (length(hash) = 32),   -- SHA-256 of the key
    account_id INTEGER NOT NULL REFERENCES accounts (id)
) STRICT, WITHOUT ROWID;

CREATE TABLE pets (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    category_id INTEGER NOT NULL,
    status      TEXT NOT NULL CHECK (status IN ('available', 'pending', 'sold'))
) STRICT;

CREATE INDEX pets_by_status ON pets (status, id);

CREATE TABLE messages (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    message    TEXT NOT NULL,
    created_at INTEGER NOT NULL   -- milliseconds since 1970, UTC
) STRICT;
