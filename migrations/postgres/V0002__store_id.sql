-- Tells the store from others on the same host. A store that was moved here from SQLite keeps it. The last 16 digits of a
-- random UUID have 62 random bits.
INSERT INTO meta (key, value) VALUES ('store_id', right(replace(gen_random_uuid()::text, '-', ''), 16))
    ON CONFLICT DO NOTHING;

UPDATE meta SET value = '1' WHERE key = 'oldest_schema';
