-- A suspended account cannot sign in, and its keys do not work. Processes of the previous version accept both.
ALTER TABLE accounts ADD COLUMN suspended_at bigint;

-- 1: the password only leads to the form of a new one.
ALTER TABLE accounts ADD COLUMN password_temporary smallint NOT NULL DEFAULT 0 CHECK (password_temporary IN (0, 1));

-- SHA-256 of the token of the link by which the owner chooses a password, and the time until which it works.
ALTER TABLE accounts ADD COLUMN link_hash bytea CHECK (octet_length(link_hash) = 32);
ALTER TABLE accounts ADD COLUMN link_until bigint;

CREATE UNIQUE INDEX accounts_by_link ON accounts (link_hash) WHERE link_hash IS NOT NULL;

-- Finds accounts that were erased a short time ago.
CREATE INDEX accounts_by_deletion ON accounts (deleted_at) WHERE deleted_at IS NOT NULL;

UPDATE meta SET value = '1' WHERE key = 'oldest_schema';
