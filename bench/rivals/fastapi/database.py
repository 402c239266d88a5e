"""Connections, tables and statements of the FastAPI rival."""

import hashlib
import os
import sqlite3
import threading
import time

from sqlalchemy import (
    BigInteger, Column, Integer, LargeBinary, MetaData, String, Table, bindparam, create_engine, event, insert, select,
)  # fmt: skip

KEY_TTL_SECONDS = 1  # Time for which a revoked key may still be accepted.

metadata = MetaData()
api_keys = Table("api_keys", metadata, Column("hash", LargeBinary, primary_key=True), Column("account_id", Integer))
pets = Table(
    "pets",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String),
    Column("category_id", BigInteger, key="categoryId"),  # Name outside the database.
    Column("status", String),
)
messages = Table(
    "messages",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("id", String),
    Column("account_id", Integer),
    Column("message", String),
    Column("created_at", BigInteger),
)

engine = create_engine(f"sqlite:///{os.environ['DATABASE']}", pool_size=8, max_overflow=0)


@event.listens_for(engine, "connect")
def set_up(connection: sqlite3.Connection, _):
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA busy_timeout = 5000")  # Other workers write, too.


# SQLite has one writer. A lock here is fairer than SQLite's polling for its lock.
writing = threading.Lock()

# Returns rows instead of ORM objects. SQLAlchemy caches the generated SQL, and sqlite3 the prepared statements.
ALL = select(pets.c.id, pets.c.name, pets.c.categoryId, pets.c.status)
LIST = ALL.where(pets.c.id > bindparam("after")).order_by(pets.c.id).limit(bindparam("count"))
LIST_BY_STATUS = LIST.where(pets.c.status == bindparam("status"))
GET = ALL.where(pets.c.id == bindparam("pet_id"))
ACCOUNT = select(api_keys.c.account_id).where(api_keys.c.hash == bindparam("hash"))
CREATE, SEND = insert(pets), insert(messages)

# Account and expiry of cached keys by hash.
accounts: dict[bytes, tuple[int, float]] = {}


def account_of(key: str) -> int | None:
    """Returns the account of a key, or None if the key is unknown."""
    hash = hashlib.sha256(key.encode()).digest()
    account, until = accounts.get(hash, (None, 0))
    if time.monotonic() < until:
        return account
    with engine.connect() as connection:
        account = connection.execute(ACCOUNT, {"hash": hash}).scalar()
    if account is None:
        accounts.pop(hash, None)
    else:
        accounts[hash] = (account, time.monotonic() + KEY_TTL_SECONDS)
    return account
