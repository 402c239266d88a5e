"""The context of a run, and its result."""

import contextlib
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from cluster import petstore
from cluster.cluster import Cluster
from cluster.packages import programs
from cluster.processes import User
from cluster.state import State


class Result(NamedTuple):
    """The measurement in words, and every violation of the promise."""

    measured: str
    failures: list

    @property
    def kept(self):
        return not self.failures


class Trial(contextlib.ExitStack):
    """One run of the rows: its seed and the cluster that they share."""

    def __init__(self, options):
        super().__init__()
        self.seed, self._options = options.seed, options
        self._begin, self._cluster = time.monotonic(), None
        self.failed = False

    def random(self, number):
        """Returns a generator that depends on the seed and the row only, not on other rows."""
        return random.Random(f"{self.seed}-{number}")

    def rounds(self, full):
        """Returns the number of rounds: that of the command line, else the full number."""
        return self._options.rounds or full

    def cluster(self):
        """Returns the cluster that the rows share. The first call starts it."""
        if not self._cluster:
            self._cluster = self.enter_context(self.new_cluster())
        return self._cluster

    @contextlib.contextmanager
    def new_cluster(self, prepare=lambda cluster: None):
        """Starts a cluster after `prepare` has changed it. Stops it at the end."""
        found, program = programs(), self._options.petstore or petstore.build()
        self._options.dir.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="promises-", dir=self._options.dir))
        # The cluster creates the folder again with its own owner and mode.
        folder.rmdir()
        cluster = Cluster(State.make(folder, User.current_or_postgres(), found, self._options.through_haproxy))
        prepare(cluster)
        try:
            cluster.start(program)
            yield cluster
        except BaseException:
            self.failed = True
            raise
        finally:
            self._leave(cluster)

    def _leave(self, cluster):
        if self._options.keep:
            self.say(f"the cluster is still up: scripts/cluster status --dir {cluster.state.folder}")
            return
        if self.failed:
            kept = self._options.dir / f"promises-{self.seed}-logs"
            shutil.copytree(cluster.state.folder / "log", kept, dirs_exist_ok=True)
            self.say(f"the logs are kept in {kept}")
        cluster.stop()

    def say(self, text):
        print(f"{time.monotonic() - self._begin:7.1f} s  {text}", file=sys.stderr, flush=True)
