"""SQL on the cluster's servers, with psql."""

import os
import subprocess

from .processes import Failed


def sql(state, port, text, user="postgres", database="petstore", seconds=60):
    """Runs the statements and returns a list of rows, each a list of strings."""
    environment = {
        "PATH": os.environ["PATH"], "PGPASSWORD": state.passwords[user],
        "PGCONNECT_TIMEOUT": "3", "PGCLIENTENCODING": "UTF8", "HOME": str(state.folder),
    }
    command = [state.programs.psql, "-XqAt", "-F\t", "-v", "ON_ERROR_STOP=1"]
    command += ["-h", "127.0.0.1", "-p", str(port), "-U", user, "-d", database]
    try:
        # On stdin, because other users can read a process's arguments.
        done = subprocess.run(
            command, input=text, env=environment, text=True, capture_output=True, timeout=seconds, cwd="/"
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"no response within {seconds} s: {text[:80]}") from None
    if done.returncode:
        raise Failed(f"psql: {done.stderr.strip()}")
    return [line.split("\t") for line in done.stdout.splitlines()]


def make(state, port):
    """Creates the service's user and database if they do not exist."""
    if not sql(state, port, "SELECT 1 FROM pg_roles WHERE rolname = 'petstore'", database="postgres"):
        password = state.passwords["petstore"]
        sql(state, port, f"CREATE ROLE petstore LOGIN PASSWORD '{password}'", database="postgres")
    if not sql(state, port, "SELECT 1 FROM pg_database WHERE datname = 'petstore'", database="postgres"):
        sql(state, port, "CREATE DATABASE petstore OWNER petstore", database="postgres")
