"""The machine and the versions of the tools."""

import datetime
import json
import os
import platform
import re
import subprocess
from pathlib import Path

from . import LOAD_CORE, ROOT, SERVER_CORE
from .contestants import RIVALS
from .load import OHA


def described(folder, pinned=True):
    """Describes the machine, and the disk of `folder`."""
    info = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", info)
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    return {
        "processor": model[1] if model else platform.machine(),
        "cores": f"{os.cpu_count()}, {f'of which {SERVER_CORE} serves and {LOAD_CORE} loads' if pinned else 'shared'}",
        "memory": f"{int(memory[1]) * 1024 / 1e9:.0f} GB",
        "disk": disk(folder),
        "kernel": f"{platform.system()} {platform.release()}",
        "virtual machine": "yes" if re.search(r"^flags.*\bhypervisor\b", info, re.MULTILINE) else "no",
    }


def disk(folder):
    """Describes the file system and its device. For a virtual disk, its sync time is more informative."""
    mount = said("findmnt", "--noheadings", "--output", "FSTYPE,SOURCE", "--target", str(folder)).split()
    if len(mount) != 2:
        return "unknown"
    kinds = {"/dev/vd": ", a virtual disk", "/dev/nvme": ", NVMe", "/dev/sd": ", SATA or SCSI"}
    journal = f", {'with' if has_journal(mount[1]) else 'without'} a journal" if mount[0] == "ext4" else ""
    kind = next((kind for start, kind in kinds.items() if mount[1].startswith(start)), "")
    return f"{mount[0]}{journal}, on {mount[1]}{kind}"


def has_journal(device):
    """Returns whether the kernel writes a journal for the ext4 file system on a device."""
    return any(Path("/proc/fs/jbd2").glob(f"{Path(device).resolve().name}-*"))


def versions(petstore, servers):
    found = {
        **program_versions(petstore),
        "hyper (yardstick)": locked(ROOT / "bench/Cargo.lock", "hyper"),
        "hyper (petstore)": locked(ROOT / "Cargo.lock", "hyper"),
        "rusqlite": locked(ROOT / "Cargo.lock", "rusqlite"),
        "wrk": wrk_version(),
        "oha": said(OHA, "--version").removeprefix("oha "),
    }
    if "axum" in servers:
        for name in ("axum", "sqlx"):
            found[name] = locked(RIVALS / "axum/Cargo.lock", name)
    if "fastify" in servers:
        lock = json.loads((RIVALS / "fastify/package-lock.json").read_text())["packages"]
        found["node"] = said("node", "--version").removeprefix("v")
        for name in ("fastify", "better-sqlite3"):
            found[name] = lock[f"node_modules/{name}"]["version"]
    if "fastapi" in servers:
        found["python"] = said(RIVALS / "python/bin/python", "--version").removeprefix("Python ")
        pins = (RIVALS / "fastapi/requirements.txt").read_text()
        for name in ("fastapi", "sqlalchemy", "uvicorn"):
            pin = re.search(rf"^{name}(?:\[.*\])?==(\S+)", pins, re.MULTILINE | re.IGNORECASE)
            found[name] = pin[1] if pin else "unknown"
    return found


def postgres_versions(petstore, server):
    return {
        **program_versions(petstore),
        "tokio-postgres": locked(ROOT / "Cargo.lock", "tokio-postgres"),
        "PostgreSQL and pgbench": server,
        "wrk": wrk_version(),
    }


def program_versions(petstore):
    return {
        "petstore": said(petstore, "--version").removeprefix("petstore ") + commit(),
        "rustc": said("rustc", "--version").removeprefix("rustc "),
    }


def wrk_version():
    return (re.search(r"wrk (\S+)", said("wrk", "-v")) or ["", "unknown"])[1]


def commit():
    short = said("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
    # Changes in docs, where this program writes, do not affect the results.
    changed = said("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return f" ({short}{', changed' if changed else ''})" if short else ""


def locked(lock, name):
    return (re.search(rf'name = "{name}"\nversion = "(.*)"', lock.read_text()) or ["", "unknown"])[1]


def said(*command):
    """Returns the output of a command, or "" if it is missing. Ignores the exit status: `wrk --version` has 1."""
    try:
        done = subprocess.run(command, text=True, capture_output=True)
    except OSError:
        return ""
    return done.stdout.strip()


def today():
    return datetime.date.today().isoformat()
