-- The program rewrites `email_folded` to Unicode form NFKC in the transaction of this migration (`src/domain/account.rs`).
-- Addresses that then collide keep their form, so that both accounts keep working.
UPDATE meta SET value = '1' WHERE key = 'oldest_schema';
