"""Debian's packages: where their programs are, and installing what is missing without letting anything start."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from .processes import Failed

APT_INSTALL = Path(__file__).resolve().parent.parent.parent / "scripts/apt-install"
POSTGRESQL_BIN = Path("/usr/lib/postgresql/15/bin")
# Which package has the program that is looked for.
PACKAGES = {
    POSTGRESQL_BIN / "postgres": "postgresql-15",
    Path("/usr/bin/psql"): "postgresql-client-15",
    Path("/usr/bin/patroni"): "patroni",
    Path("/usr/bin/etcd"): "etcd-server",
    Path("/usr/sbin/haproxy"): "haproxy",
}
SERVICES = ("etcd", "haproxy", "patroni", "postgresql")
POLICY = Path("/usr/sbin/policy-rc.d")
NO_MAIN_CLUSTER = Path("/etc/postgresql-common/createcluster.d/petstore-cluster.conf")


class Programs(NamedTuple):
    postgresql_bin: str
    psql: str
    patroni: str
    etcd: str
    haproxy: str


def programs():
    """The programs, installed first where they are missing and this is root on Debian."""
    missing = [package for program, package in PACKAGES.items() if not program.exists()]
    if missing:
        if os.getuid() or not shutil.which("apt-get"):
            raise Failed(
                f"please install {' '.join(missing)} (Debian 12; as root, this command does), "
                "and stop and disable the services that come with them"
            )
        install(missing)
    return Programs(str(POSTGRESQL_BIN), "/usr/bin/psql", "/usr/bin/patroni", "/usr/bin/etcd", "/usr/sbin/haproxy")


def install(packages):
    """Debian's packages start and enable their services, and PostgreSQL's makes a server: none of that is wanted here.

    Afterwards the machine has the programs and is otherwise as before.
    """
    print(f"installing {' '.join(packages)}", file=sys.stderr)
    with contextlib.ExitStack() as undo:
        undo.enter_context(replaced(POLICY, "#!/bin/sh\nexit 101\n", 0o755))
        undo.enter_context(replaced(NO_MAIN_CLUSTER, "create_main_cluster = false\n", 0o644))
        enabled = enabled_services()
        done = subprocess.run([APT_INSTALL, *packages], text=True, capture_output=True)
        if done.returncode:
            raise Failed(f"{APT_INSTALL} {' '.join(packages)} failed:\n{done.stderr}")
        for service in enabled_services() - enabled:
            # Of System V's links and, where systemd is, of its units.
            subprocess.run(["update-rc.d", service, "disable"], check=True, capture_output=True)


def enabled_services():
    wants = Path("/etc/systemd/system/multi-user.target.wants")
    return {service for service in SERVICES if (wants / f"{service}.service").is_symlink()}


@contextlib.contextmanager
def replaced(path, text, mode):
    """A file with this text for a while, and afterwards what was there before."""
    before = (path.read_bytes(), path.stat().st_mode & 0o7777) if path.exists() else None
    made = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_text(text)
        path.chmod(mode)
        yield
    finally:
        path.unlink()
        if before:
            path.write_bytes(before[0])
            path.chmod(before[1])
        # The package owns the folder by now, or it is empty and goes.
        for folder in made:
            with contextlib.suppress(OSError):
                if subprocess.run(["dpkg", "-S", folder], capture_output=True).returncode:
                    folder.rmdir()
