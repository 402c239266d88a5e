"""Builds and installs the tools of the benchmark, into target/tools if they have pinned versions."""

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


def build(binary, *arguments, **environment):
    """Builds a release and returns its path, as reported by cargo."""
    command = ["cargo", "build", "--release", "--locked", "--bin", binary, *arguments]
    command.append("--message-format=json-render-diagnostics")
    output = subprocess.run(
        command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | environment
    ).stdout
    made = (json.loads(line) for line in output.splitlines())
    return next(m["executable"] for m in made if m.get("executable") and m["target"]["name"] == binary)


def build_static():
    """Builds the program of the artefacts and returns its path. Takes 5 to 10 minutes, half with PROFILE."""
    say("building the released program with scripts/build-static")
    command = [ROOT / "scripts/build-static"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def tools(names):
    """Installs missing Debian packages as root. Otherwise fails with their names."""
    packages = {"cargo": None, "wrk": "wrk", "taskset": "util-linux", "node": "nodejs", "npm": "npm"}
    packages |= {"openssl": "openssl", "valgrind": "valgrind", "strace": "strace"}
    missing = [name for name in names if not shutil.which(name)]
    wanted = [packages[name] for name in missing]
    if not missing:
        return
    if None in wanted or os.getuid() != 0 or not shutil.which("apt-get"):
        raise Failed(f"not installed: {', '.join(missing)}")
    subprocess.run([ROOT / "scripts/apt-install", *wanted], check=True)


def oha():
    """Builds oha, which takes about four minutes on two cores. Its TLS, not needed here, cannot be turned off."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        version = subprocess.run([OHA, "--version"], check=True, text=True, capture_output=True).stdout
        if version.split()[1] == OHA_VERSION:
            return
    say(f"building oha {OHA_VERSION}, once; this takes some minutes")
    command = ["cargo", "install", "--locked", "--quiet", "--force", "--root", TOOLS, f"oha@{OHA_VERSION}"]
    subprocess.run(command, check=True, stdout=sys.stderr)


def rivals(names):
    """Copies the rivals to target/tools, builds axum and installs the pinned versions of the others' libraries."""
    source = ROOT / "bench/rivals"
    ignored = shutil.ignore_patterns("node_modules", "__pycache__", "target")
    shutil.copytree(source, RIVALS, dirs_exist_ok=True, ignore=ignored)
    if "axum" in names:
        built = build("petstore-axum", "--manifest-path", "bench/rivals/axum/Cargo.toml")
        shutil.copy(built, RIVALS / "petstore-axum")
    if "fastify" in names and renewed(source / "fastify/package-lock.json", RIVALS / "fastify.pins"):
        say("installing Fastify; compiling SQLite takes a minute or two")
        command = ["npm", "ci", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
        subprocess.run(command, check=True, cwd=RIVALS / "fastify", stdout=sys.stderr)
        shutil.copy(source / "fastify/package-lock.json", RIVALS / "fastify.pins")
    if "fastapi" in names and renewed(source / "fastapi/requirements.txt", RIVALS / "fastapi.pins"):
        say("installing FastAPI")
        venv.create(RIVALS / "python", clear=True, with_pip=True)
        command = [RIVALS / "python/bin/python", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
        command += ["--disable-pip-version-check", "-r", source / "fastapi/requirements.txt"]
        subprocess.run(command, check=True)
        shutil.copy(source / "fastapi/requirements.txt", RIVALS / "fastapi.pins")


def renewed(pins, installed):
    """Returns whether the pinned versions differ from the installed ones."""
    return not (installed.exists() and filecmp.cmp(pins, installed, shallow=False))


def say(text):
    print(text, file=sys.stderr)
