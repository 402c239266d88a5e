"""A temporary PostgreSQL server with a typical configuration, and its CPU time."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

from cluster import packages
from cluster.processes import User, becomes, free_ports, stat, tree

from . import Failed
from .servers import ENVIRONMENT

# Other settings have their defaults. The page shows the values of these and of SHOWN as reported by the server.
SETTINGS = {
    "shared_buffers": "256MB",
    "max_connections": "200",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_compression": "off",
}
SHOWN = (*SETTINGS, "wal_sync_method", "data_checksums", "autovacuum", "checkpoint_timeout", "max_wal_size")


class Database(NamedTuple):
    programs: Path  # folder of the PostgreSQL programs
    process: subprocess.Popen
    port: int

    def url(self, database="petstore"):
        return f"postgres://petstore@127.0.0.1:{self.port}/{database}"

    def sql(self, text, variables=None, database="petstore"):
        """Runs the statements and returns rows of strings. `:name` is a variable."""
        command = [self.programs / "psql", "-XqAt", "-F\t", "-v", "ON_ERROR_STOP=1", "-d", self.url(database)]
        command += [f"--set={name}={value}" for name, value in (variables or {}).items()]
        # On standard input, each statement is its own transaction, which VACUUM requires.
        done = subprocess.run(command, input=text, text=True, capture_output=True, env=ENVIRONMENT, timeout=120)
        if done.returncode != 0:
            raise Failed(f"psql: {done.stderr.strip()}")
        return [line.split("\t") for line in done.stdout.splitlines()]

    def count(self, table):
        return int(self.sql(f"SELECT count(*) FROM {table}")[0][0])

    def settings(self):
        return {name: self.sql(f"SHOW {name}")[0][0] for name in SHOWN}

    def version(self):
        return self.sql("SHOW server_version")[0][0].split()[0]

    def processes(self):
        return set(tree([self.process.pid]))

    def cpu_seconds(self):
        """Returns the user and system time of all server processes since its start.

        That of a process which has ended is in its parent's figures from when the parent has taken note. Where one
        ends while this looks, its time would be missing or there twice, so this looks again.
        """
        for _ in range(100):
            processes = self.processes()
            fields = [stat(pid) for pid in processes]
            if None not in fields and self.processes() == processes:
                return sum(int(ticks) for each in fields for ticks in each[11:15]) / os.sysconf("SC_CLK_TCK")
        raise Failed("cannot measure the CPU time of PostgreSQL: its processes start and end too fast")


@contextlib.contextmanager
def running(folder):
    """Runs a new server with an empty database `petstore` that accepts local connections without a password."""
    with started(folder, "postgresql", "initdb", "-U", "petstore", "-A", "trust", "-E", "UTF8", "--locale=C") as database:
        yield database
        if database.process.poll() is not None:
            raise Failed(f"PostgreSQL ended unexpectedly:\n{(folder / 'postgresql.log').read_text()[-2000:]}")


@contextlib.contextmanager
def pair(folder):
    """Runs a server with an empty database `petstore`, and a synchronous standby of it. Either may be killed."""
    copy = ["pg_basebackup", "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d"]
    with (
        started(folder, "primary", "initdb", "-U", "petstore", "-A", "trust", "-E", "UTF8", "--locale=C") as primary,
        started(folder, "standby", *copy, primary.url()) as standby,
    ):
        # After the copy, so that the standby commits alone once it is promoted.
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'; SELECT pg_reload_conf()")
        if not becomes(lambda: primary.sql("SELECT sync_state FROM pg_stat_replication") == [["sync"]], 60):
            raise Failed("the standby does not become synchronous")
        yield primary, standby


@contextlib.contextmanager
def started(folder, name, program, *arguments):
    """Runs a server on data that `program` creates, with a database `petstore`."""
    programs, user, data = installed(), User.current_or_postgres(), folder / name
    # PostgreSQL refuses to run as root. Its user needs access to the data.
    folder.chmod(0o711)
    data.mkdir(mode=0o700)
    os.chown(data, user.uid, user.gid)
    command = [programs / program, "-D", data, *arguments]
    done = subprocess.run(command, text=True, capture_output=True, env=ENVIRONMENT, cwd="/", **user.popen())
    if done.returncode != 0:
        raise Failed(f"{program}, as {user.name}, failed (--dir must be accessible to this user):\n{done.stderr}")
    port, log = free_ports(1)[0], folder / f"{name}.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [programs / "postgres", "-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1",
             "-c", "unix_socket_directories=", *(f"--{name}={value}" for name, value in SETTINGS.items())],
            stdout=out, stderr=out, env=ENVIRONMENT, cwd="/",
            start_new_session=True,  # As for the other servers, Ctrl-C reaches only this program.
            **user.popen(),
        )
    database = Database(programs, process, port)
    try:
        if not becomes(lambda: process.poll() is not None or made(database), 60) or process.poll() is not None:
            raise Failed(f"PostgreSQL does not respond:\n{log.read_text()[-2000:]}")
        yield database
    finally:
        # First a fast shutdown, then an immediate one.
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
                break


def made(database):
    """Returns whether the server responds, and creates the database if it has none."""
    try:
        if database.sql("SELECT 1 FROM pg_database WHERE datname = 'petstore'", database="postgres") == []:
            database.sql("CREATE DATABASE petstore", database="postgres")
    except Failed:
        return False
    return True


def installed():
    """Returns the folder of the newest PostgreSQL programs. Installs the Debian package if there are none."""
    if not found():
        if os.getuid() != 0 or not shutil.which("apt-get"):
            raise Failed("not installed: PostgreSQL's server (Debian's package postgresql)")
        packages.install(["postgresql"])
    return found()[-1]


def found():
    folders = [file.parent for file in Path("/usr/lib/postgresql").glob("*/bin/pgbench")]
    return sorted(folders, key=lambda folder: float(folder.parent.name))
