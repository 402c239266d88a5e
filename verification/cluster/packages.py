"""Debian packages: paths of their programs, and installation without starting services."""

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
# Packages by program.
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
    """Returns the paths of the programs. As root on Debian, installs missing ones."""
    missing = [package for program, package in PACKAGES.items() if not program.exists()]
    if missing:
        if os.getuid() or not shutil.which("apt-get"):
            raise Failed(
                f"missing packages: install {' '.join(missing)} (on Debian 12, this command installs them if run as "
                "root), and stop and disable their services"
            )
        install(missing)
    return Programs(str(POSTGRESQL_BIN), "/usr/bin/psql", "/usr/bin/patroni", "/usr/bin/etcd", "/usr/sbin/haproxy")


def install(packages):
    """Installs packages without starting or enabling their services, and without creating a PostgreSQL server."""
    print(f"installing {' '.join(packages)}", file=sys.stderr)
    with contextlib.ExitStack() as undo:
        undo.enter_context(replaced(POLICY, "#!/bin/sh\nexit 101\n", 0o755))
        undo.enter_context(replaced(NO_MAIN_CLUSTER, "create_main_cluster = false\n", 0o644))
        enabled = enabled_services()
        done = subprocess.run([APT_INSTALL, *packages], text=True, capture_output=True)
        if done.returncode:
            raise Failed(f"{APT_INSTALL} {' '.join(packages)} failed:\n{done.stderr}")
        for service in enabled_services() - enabled:
            # Disables both System V links and systemd units.
            subprocess.run(["update-rc.d", service, "disable"], check=True, capture_output=True)


def enabled_services():
    wants = Path("/etc/systemd/system/multi-user.target.wants")
    return {service for service in SERVICES if (wants / f"{service}.service").is_symlink()}


@contextlib.contextmanager
def replaced(path, text, mode):
    """Replaces a file temporarily, and restores the original."""
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
        # Removes folders that are not owned by an installed package.
        for folder in made:
            with contextlib.suppress(OSError):
                if subprocess.run(["dpkg", "-S", folder], capture_output=True).returncode:
                    folder.rmdir()
