-- Orders queued messages by account and id, so that the relay takes accounts in turn, then sent messages by time. Relays of
-- the previous version work with it, more slowly.
CREATE INDEX messages_by_account ON messages (sent_at, account_id, id);
DROP INDEX messages_by_sending;
ALTER INDEX messages_by_account RENAME TO messages_by_sending;

UPDATE meta SET value = '1' WHERE key = 'oldest_schema';
