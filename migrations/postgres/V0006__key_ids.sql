-- Only SQLite gave ids of erased keys out again.
UPDATE meta SET value = '1' WHERE key = 'oldest_schema';
