"""What a request costs petstore and others, measured. `main` is the way in."""

from pathlib import Path
from typing import NamedTuple

from cluster.processes import Failed as Failed  # Why there is no figure; what is used from there says so too.

ROOT = Path(__file__).resolve().parent.parent.parent
TOOLS = ROOT / "target" / "tools"
# With a core each, neither side takes time from the other, and all of a server's threads share one.
SERVER_CORE, LOAD_CORE = 0, 1


class Cores(NamedTuple):
    """The cores of a server and of its load, as lists for taskset."""

    server: str
    load: str


SPLIT = Cores(str(SERVER_CORE), str(LOAD_CORE))
SHARED = Cores(*[f"{SERVER_CORE},{LOAD_CORE}"] * 2)


def name_of(id, padding=""):
    """The name of the animal with this id; `padding` makes names long, up to the 255 characters that are allowed."""
    return f"animal-{id:05}{padding}"[:255]


def status_of(id):
    """Every third animal is available, beginning with the first."""
    return ("available", "pending", "sold")[(id - 1) % 3]
