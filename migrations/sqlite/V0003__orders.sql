-- Orders of animals.

-- Ids are the greatest one plus one, as those of animals. No order is ever deleted, so none is reused.
CREATE TABLE orders (
    id         INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND 9007199254740991),
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    pet_id     INTEGER NOT NULL REFERENCES pets (id),
    status     INTEGER NOT NULL CHECK (status BETWEEN 0 AND 3),   -- 0 placed, 1 approved, 2 delivered, 3 cancelled
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL                                   -- when the status last changed
) STRICT;

-- One animal never has two orders that are not cancelled, whoever asks at once.
CREATE UNIQUE INDEX orders_of_pet ON orders (pet_id) WHERE status <> 3;

-- It holds every column, so that an account's list reads the index alone. Orders of all statuses are merged from it: an
-- index without the status would cost each new order a tenth of its time.
CREATE INDEX orders_by_status ON orders (account_id, status, id, pet_id, created_at, updated_at);
