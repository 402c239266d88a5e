"""Debian packages: paths of their programs, and installation."""

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
                f"missing packages: install {' '.join(missing)} (on Debian 12, this command installs them if run as root)"
            )
        install(missing)
    return Programs(str(POSTGRESQL_BIN), "/usr/bin/psql", "/usr/bin/patroni", "/usr/bin/etcd", "/usr/sbin/haproxy")


def install(packages):
    print(f"installing {' '.join(packages)}", file=sys.stderr)
    done = subprocess.run([APT_INSTALL, *packages], text=True, capture_output=True)
    if done.returncode:
        raise Failed(f"{APT_INSTALL} {' '.join(packages)} failed:\n{done.stderr}")
