"""python fill.py DATABASE: creates a database with the animals on stdin (JSON lines) and the key in BENCH_KEY."""

import hashlib
import json
import os
import sqlite3
import sys
from pathlib import Path

key = os.environ.get("BENCH_KEY")
if len(sys.argv) != 2 or not key:
    sys.exit("usage: BENCH_KEY=KEY python fill.py DATABASE < ANIMALS")

database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode = WAL")
schema = (Path(__file__).parent.parent / "schema.sql").read_text()
database.executescript(f"BEGIN; {schema}")
database.execute("INSERT INTO accounts (id) VALUES (1)")
database.execute("INSERT INTO api_keys (hash, account_id) VALUES (?, 1)", [hashlib.sha256(key.encode()).digest()])
animals = map(json.loads, sys.stdin)
database.executemany("INSERT INTO pets (name, category_id, status) VALUES (:name, :categoryId, :status)", animals)
database.execute("COMMIT")
# Closing the last connection checkpoints the WAL.
database.close()
