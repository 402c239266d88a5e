"""The database of the FastAPI rival: its connections, its tables, and every statement."""

import hashlib
import os
import sqlite3
import threading
import time

from sqlalchemy import (
    BigInteger, Column, Integer, LargeBinary, MetaData, String, Table, bindparam, create_engine, event, insert, select,
)  # fmt: skip

KEY_TTL_SECONDS = 1  # How long a key that was revoked may still be let in.

metadata = MetaData()
api_keys = Table("api_keys", metadata, Column("hash", LargeBinary, primary_key=True), Column("account_id", Integer))
pets = Table(
    "pets",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String),
    Column("category_id", BigInteger, key="categoryId"),  # What it is called everywhere but in the database.
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
    connection.execute("PRAGMA busy_timeout = 5000")  # The other workers write too.


# SQLite has one writer; waiting for it here is fairer than polling for its lock, which is what SQLite does.
writing = threading.Lock()

# Rows and not objects: there is nothing to track. SQLAlchemy keeps the SQL it made, and sqlite3 what it prepared of it.
ALL = select(pets.c.id, pets.c.name, pets.c.categoryId, pets.c.status)
LIST = ALL.where(pets.c.id > bindparam("after")).order_by(pets.c.id).limit(bindparam("count"))
LIST_BY_STATUS = LIST.where(pets.c.status == bindparam("status"))
GET = ALL.where(pets.c.id == bindparam("pet_id"))
ACCOUNT = select(api_keys.c.account_id).where(api_keys.c.hash == bindparam("hash"))
CREATE, SEND = insert(pets), insert(messages)

# By the hash of a key that was found: its account, and until when to believe it.
accounts: dict[bytes, tuple[int, float]] = {}


def account_of(key: str) -> int | None:
    """The account that a key belongs to, if it is a key."""
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
