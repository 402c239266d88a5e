-- Tells the store from others on the same host. A backup, and a store that was moved to PostgreSQL, keep it.
INSERT INTO meta (key, value) VALUES ('store_id', lower(hex(randomblob(8)))) ON CONFLICT DO NOTHING;
