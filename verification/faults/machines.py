"""Network namespaces as machines, whose links can be cut, also in one direction.

Each process listens on 127.0.0.1 and finds all others there, because address translation sends a connection to the machine
that has its port. Therefore `verification/cluster` does not depend on the namespaces.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
from pathlib import Path

from cluster.packages import install
from cluster.processes import Failed

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
NETWORK = "10.77.0"
PACKAGES = {"ip": "iproute2", "iptables": "iptables"}


class Machine:
    """A network namespace. It exists until it is closed and its last process has ended."""

    def __init__(self, number):
        self.address = f"{NETWORK}.{number}"
        with entered(None):
            call(LIBC.unshare, CLONE_NEWNET)
            self._file = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            run("ip", "link", "set", "lo", "up")

    @property
    def path(self):
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def entered(self):
        """Moves the current thread into the machine, and the threads and processes that it starts."""
        return entered(self._file)

    def runs(self, function):
        """Returns a function that runs `function` on this machine."""

        def on_machine(*arguments, **named):
            with self.entered():
                return function(*arguments, **named)

        return on_machine

    def cut(self, others, ways=("INPUT", "OUTPUT")):
        """Drops the packets from (`INPUT`) and to (`OUTPUT`) other machines."""
        sides = {"INPUT": "--source", "OUTPUT": "--destination"}
        with self.entered():
            for way in ways:
                for other in others:
                    run("iptables", "--wait", "--append", way, sides[way], other.address, "--jump", "DROP")

    def heal(self):
        with self.entered():
            run("iptables", "--wait", "--flush")

    def close(self):
        os.close(self._file)

    def _translate(self, device, ports_of):
        """Sends connections to the ports of other machines there, and accepts theirs on loopback."""
        Path("/proc/sys/net/ipv4/conf/all/route_localnet").write_text("1")
        for other, ports in ports_of.items():
            if other is not self:
                nat("OUTPUT", "--destination", "127.0.0.1", "--protocol", "tcp", "--match", "multiport", "--dports",
                    ",".join(map(str, ports)), "--jump", "DNAT", "--to-destination", other.address)
        nat("POSTROUTING", "--source", "127.0.0.1", "--out-interface", device, "--jump", "MASQUERADE")
        nat("PREROUTING", "--in-interface", device, "--protocol", "tcp", "--destination", self.address,
            "--jump", "DNAT", "--to-destination", "127.0.0.1")


@contextlib.contextmanager
def machines(count):
    """Returns a hub, on which the current thread runs meanwhile, and `count` machines around it."""
    if os.getuid():
        raise Failed("network namespaces need root")
    if missing := [package for program, package in PACKAGES.items() if not shutil.which(program)]:
        install(missing)
    hub, *others = [Machine(number) for number in range(1, count + 2)]
    with contextlib.ExitStack() as undo:
        for each in (hub, *others):
            undo.callback(each.close)
        undo.enter_context(hub.entered())
        run("ip", "link", "add", "hub", "type", "bridge")
        run("ip", "address", "add", f"{hub.address}/24", "dev", "hub")
        run("ip", "link", "set", "hub", "up")
        for number, machine in enumerate(others):
            near = f"link{number}"
            run("ip", "link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", machine.path)
            run("ip", "link", "set", near, "master", "hub", "up")
            with machine.entered():
                run("ip", "address", "add", f"{machine.address}/24", "dev", "eth0")
                run("ip", "link", "set", "eth0", "up")
        yield hub, others


def connect(ports_of):
    """Makes the ports of each machine reachable from all others. The first machine is the hub."""
    for number, machine in enumerate(ports_of):
        with machine.entered():
            machine._translate("eth0" if number else "hub", ports_of)


@contextlib.contextmanager
def entered(file):
    """Moves the current thread into a namespace, and back. With None, only back."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if file is not None:
            call(LIBC.setns, file, CLONE_NEWNET)
        yield
    finally:
        call(LIBC.setns, before, CLONE_NEWNET)
        os.close(before)


def call(function, *arguments):
    if function(*arguments):
        number = ctypes.get_errno()
        raise Failed(f"{function.__name__}: {os.strerror(number)}")


def nat(chain, *rule):
    run("iptables", "--wait", "--table", "nat", "--append", chain, *rule)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
