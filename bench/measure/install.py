"""What measuring needs: built or installed where it is missing, in target/tools where it has a version of its own."""

import contextlib
import filecmp
import json
import os
import shutil
import subprocess
import sys
import venv

from . import ROOT, TOOLS, Failed
from .contestants import RIVALS
from .load import OHA

OHA_VERSION = "1.16.0"


def build(binary, *arguments):
    """Builds a release and returns the path cargo put it at, wherever its target folder is."""
    command = ["cargo", "build", "--release", "--locked", "--bin", binary, *arguments]
    command.append("--message-format=json-render-diagnostics")
    output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    made = (json.loads(line) for line in output.splitlines())
    return next(m["executable"] for m in made if m.get("executable") and m["target"]["name"] == binary)


def tools(names):
    """Debian's packages, installed where this runs as root and named where not."""
    packages = {"cargo": None, "wrk": "wrk", "taskset": "util-linux", "node": "nodejs", "npm": "npm"}
    missing = [name for name in names if not shutil.which(name)]
    wanted = [packages[name] for name in missing]
    if not missing:
        return
    if None in wanted or os.getuid() != 0 or not shutil.which("apt-get"):
        raise Failed(f"not installed: {', '.join(missing)}")
    subprocess.run([ROOT / "scripts/apt-install", *wanted], check=True)


def oha():
    """oha, about four minutes on two cores. It can't be built without TLS, which no one needs here."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        version = subprocess.run([OHA, "--version"], check=True, text=True, capture_output=True).stdout
        if version.split()[1] == OHA_VERSION:
            return
    say(f"building oha {OHA_VERSION}, once: some minutes")
    command = ["cargo", "install", "--locked", "--quiet", "--force", "--root", TOOLS, f"oha@{OHA_VERSION}"]
    subprocess.run(command, check=True, stdout=sys.stderr)


def rivals(names):
    """Copies the rivals to target/tools and installs their libraries beside them, in the versions they pin."""
    source = ROOT / "bench/rivals"
    shutil.copytree(source, RIVALS, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
    if "fastify" in names and renewed(source / "fastify/package-lock.json", RIVALS / "fastify.pins"):
        say("installing Fastify's libraries; SQLite is compiled, which takes a minute or two")
        command = ["npm", "ci", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
        subprocess.run(command, check=True, cwd=RIVALS / "fastify", stdout=sys.stderr)
        shutil.copy(source / "fastify/package-lock.json", RIVALS / "fastify.pins")
    if "fastapi" in names and renewed(source / "fastapi/requirements.txt", RIVALS / "fastapi.pins"):
        say("installing FastAPI's libraries")
        venv.create(RIVALS / "python", clear=True, with_pip=True)
        command = [RIVALS / "python/bin/python", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
        command += ["--disable-pip-version-check", "-r", source / "fastapi/requirements.txt"]
        subprocess.run(command, check=True)
        shutil.copy(source / "fastapi/requirements.txt", RIVALS / "fastapi.pins")


def renewed(pins, installed):
    """Whether the pins differ from the copy that tells what is installed."""
    return not (installed.exists() and filecmp.cmp(pins, installed, shallow=False))


def say(text):
    print(text, file=sys.stderr)
