import json
import subprocess

import pytest


@pytest.fixture(scope="session")
def store():
    command = ["petstore", "ephemeral"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield json.loads(process.stdout.readline())
        # Leaving the block closes stdin, which ends the store.
