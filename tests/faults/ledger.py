"""What was answered to every write, to be held against what the database has."""

from typing import NamedTuple


class Differences(NamedTuple):
    """Names by what is wrong with them; `settled` is how many of unknown outcome are there, right either way."""

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
    """Every write has a name of its own and ends in one of three ways."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.acknowledged = {}  # name -> the id that was answered
        self.refused = set()
        self.unknown = set()
        self._sent = 0

    def new_name(self):
        """The name of a write about to be sent, which is of unknown outcome until its answer is there."""
        self._sent += 1
        name = f"{self.prefix}-{self._sent}"
        self.unknown.add(name)
        return name

    def acknowledge(self, name, id):
        self.unknown.discard(name)
        self.acknowledged[name] = id

    def refuse(self, name):
        self.unknown.discard(name)
        self.refused.add(name)

    def compare(self, rows):
        """Holds the ledger against the database's names and ids."""
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
