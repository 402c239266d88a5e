"""The procedures of docs/runbook.md that need a cluster, as the page has them."""

import os
import re
import subprocess

from cluster.petstore import ROOT, database_url
from cluster.processes import Failed

SECTION = "PostgreSQL is gone"


def blocks():
    """Returns the section's blocks of commands."""
    page = (ROOT / "docs/runbook.md").read_text()
    section = page.split(f"\n## {SECTION}\n")[1].split("\n## ")[0]
    return re.findall(r"\n```\n(.*?)```", section, re.DOTALL)


def follow(cluster, commands):
    """Runs the commands on the primary's machine and returns their output."""
    state, leader = cluster.state, cluster.leader()
    if not leader:
        raise Failed("there is no primary")
    values = {"HOST": "127.0.0.1", "PORT": str(leader.port), "/etc/patroni/config.yml": f"{state.folder}/config/{leader.name}.yml"}
    for name, value in values.items():
        commands = commands.replace(name, value)
    environment = {
        "PATH": f"{state.folder}:{os.environ['PATH']}", "HOME": str(state.folder), "LC_ALL": "C.UTF-8",
        "PETSTORE_DATABASE_URL": database_url(state),
        "URL": f"postgres://postgres:{state.passwords['postgres']}@127.0.0.1:{leader.port}/petstore",
    }
    done = subprocess.run(["sh", "-ec", commands], env=environment, cwd="/", text=True, capture_output=True, timeout=60)
    if done.returncode:
        raise Failed(f"docs/runbook.md, {SECTION}: exit {done.returncode}\n{commands}\n{done.stderr}")
    return done.stdout
