"""The outcome of every write, to compare with the database."""

import itertools
from typing import NamedTuple


class Differences(NamedTuple):
    """Names by their violation. `settled` counts the writes of unknown outcome that are stored, which is allowed."""

    lost: list
    doubled: list
    present_though_refused: list
    never_sent: list
    settled: int

    def failures(self):
        kinds = {
            "acknowledged and lost": self.lost,
            "there twice": self.doubled,
            "refused and yet there": self.present_though_refused,
            "there without having been sent": self.never_sent,
        }
        return [f"{len(names)} {kind}, such as {names[0]}" for kind, names in kinds.items() if names]


class Ledger:
    """Records writes by unique names. Each is acknowledged, refused or of unknown outcome."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.acknowledged = {}  # name -> id in the response
        self.refused = set()
        self.unknown = set()
        # Counts safely in several threads.
        self._numbers = itertools.count(1)

    def new_name(self):
        """Returns the name of the next write. Its outcome is unknown until there is a response."""
        name = f"{self.prefix}-{next(self._numbers)}"
        self.unknown.add(name)
        return name

    def acknowledge(self, name, id):
        self.unknown.discard(name)
        self.acknowledged[name] = id

    def refuse(self, name):
        self.unknown.discard(name)
        self.refused.add(name)

    def compare(self, rows):
        """Compares the ledger with the names and ids in the database."""
        there, doubled = {}, []
        for name, id in rows:
            if there.setdefault(name, id) != id:
                doubled.append(name)
        return Differences(
            lost=[name for name, id in self.acknowledged.items() if there.get(name) != id],
            doubled=doubled,
            present_though_refused=[name for name in self.refused if name in there],
            never_sent=[
                name for name in there
                if name not in self.acknowledged and name not in self.refused and name not in self.unknown
            ],
            settled=sum(name in there for name in self.unknown),
        )
