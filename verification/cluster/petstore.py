"""The petstore processes, and their account and API key."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from . import http
from .processes import Failed, Process
from .state import LISTENERS, MEMBERS

ROOT = Path(__file__).resolve().parent.parent.parent


def build():
    """Builds a release and returns its path, as reported by cargo."""
    if not shutil.which("cargo"):
        raise Failed("cargo is missing: install Rust, or name a built program with --petstore")
    command = ["cargo", "build", "--release", "--locked", "--bin", "petstore"]
    command.append("--message-format=json-render-diagnostics")
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failed("petstore does not build")
    made = (json.loads(line) for line in done.stdout.splitlines())
    return Path(next(m["executable"] for m in made if m.get("executable") and m["target"]["name"] == "petstore"))


def install(state, program):
    """Copies the program into the cluster's folder, so that rebuilding does not affect the cluster."""
    copy = state.folder / "petstore"
    shutil.copy2(program, copy)
    copy.chmod(0o755)


def database_url(state):
    """Returns a URL with all servers, of which the driver selects the primary, or with HAProxy's port."""
    ports = state.ports
    chosen = [ports["primary"]] if state.through_haproxy else [ports[member] for member in MEMBERS]
    hosts = ",".join(f"127.0.0.1:{port}" for port in chosen)
    return f"postgres://petstore:{state.passwords['petstore']}@{hosts}/petstore?target_session_attrs=read-write"


def make_key(state):
    """Creates an account and its API key with the command line, which also creates the tables."""
    environment = {"PETSTORE_DATABASE_URL": database_url(state), "PATH": os.environ["PATH"]}

    def run(*arguments):
        command = [state.folder / "petstore", *arguments]
        done = subprocess.run(
            command, env=environment, cwd=state.folder, text=True, capture_output=True, timeout=60, **state.user.popen()
        )
        if done.returncode:
            raise Failed(f"petstore {' '.join(arguments[:2])} failed:\n{done.stderr}")
        return done.stdout.strip()

    run("account", "create", "cluster@localhost")
    key = run("key", "create", "--account", "cluster@localhost", "--name", "cluster")
    with os.fdopen(os.open(state.key_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(key + "\n")


def create_pet(state, name, port=None):
    """Creates an animal, through HAProxy unless there is a port. Returns its id, or `None`."""
    key, body = state.key_file.read_text().strip(), {"name": name, "categoryId": 1}
    status, content = http.request(port or state.ports["store"], "/v1/pets", method="POST", body=body, key=key, timeout=5)
    return json.loads(content)["id"] if status == 201 else None


class Petstore:
    """A petstore process."""

    def __init__(self, state, name):
        self._state, self.name = state, name
        self.ports = {listener: state.ports[f"{name}_{listener}"] for listener in LISTENERS}
        self.process = Process(state.folder, name)
        self.flags = []  # more flags of `petstore serve`

    def start(self):
        ports, public = self.ports, self._state.ports
        self.process.start(
            [
                self._state.folder / "petstore", "serve",
                f"--listen=127.0.0.1:{ports['store']}",
                f"--messages-listen=127.0.0.1:{ports['messages']}",
                f"--ops-listen=127.0.0.1:{ports['ops']}",
                # Links in responses have HAProxy's addresses, which reach all processes.
                f"--base-url=http://127.0.0.1:{public['store']}/v1",
                f"--messages-base-url=http://127.0.0.1:{public['messages']}/v1",
                *self.flags,
            ],
            self._state.user,
            # In the environment, because other users can read a process's arguments.
            {"PETSTORE_DATABASE_URL": database_url(self._state)},
        )

    def ready(self):
        try:
            return http.request(self.ports["ops"], "/readyz")[0] == 200
        except OSError:
            return False
