"""A wire between hosts: this program carries the packets of network namespaces, late or not at all.

    host a ── TUN ──╮                        ╭── TUN ── host b       each a process in its own namespace
                    ╰── this program ────────╯                       10.77.0.1, called host-1, ...

Usage: python wire.py HOSTS SEED.  It prints `{"hosts": [pid, ...]}` once the hosts are up, pid being that of
a process in the host's namespaces (for nsenter(1)), or `{"error": "..."}` if the system does not allow
creating them.  Then it reads one JSON object per line from stdin, and prints `{}` once it is in effect:

    delay     seconds by which each packet is delayed
    loss      the fraction of packets that are lost, 0 to 1
    cut       the hosts (by number) whose packets are all lost

It ends with its stdin, and the hosts end with it.  Real TCP runs over it, with retransmissions.  netem(8)
does the same in kernels that have it, but many kernels in containers and on build machines do not.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

NETWORK = "10.77.0."

# <sched.h>, <linux/if_tun.h>, <linux/if.h>, <linux/sockios.h>
CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWNET = 0x04000000, 0x10000000, 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
IFF_UP, IFF_RUNNING = 0x1, 0x40
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C

_PACKET = 65536


@dataclass
class Wire:
    """What happens to packets. devices: the TUN devices' descriptors, by host."""

    devices: list[int]
    random: random.Random
    delay: float = 0.0
    loss: float = 0.0
    cut: frozenset[int] = frozenset()
    _in_flight: list[tuple[float, int, int, bytes]] = field(default_factory=list)
    _sequence: itertools.count[int] = field(default_factory=itertools.count)

    def run(self) -> None:
        """Carry packets and follow commands from stdin, until it ends."""
        poll = select.poll()
        for descriptor in [0, *self.devices]:
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll(self._until_due()):
                if descriptor != 0:
                    self._take(self.devices.index(descriptor))
                elif not self._read_command():
                    return
            while self._in_flight and self._in_flight[0][0] <= time.monotonic():
                _, _, to, packet = heapq.heappop(self._in_flight)
                os.write(self.devices[to], packet)

    def _until_due(self) -> float | None:
        """Return milliseconds."""
        if not self._in_flight:
            return None
        return max(0.0, (self._in_flight[0][0] - time.monotonic()) * 1000)

    def _take(self, source: int) -> None:
        packet = os.read(self.devices[source], _PACKET)
        to = packet[19] - 1 if packet[0] >> 4 == 4 else -1  # RFC 791: the last byte of the destination
        if not 0 <= to < len(self.devices) or {source, to} & self.cut or self.random.random() < self.loss:
            return
        heapq.heappush(self._in_flight, (time.monotonic() + self.delay, next(self._sequence), to, packet))

    def _read_command(self) -> bool:
        line = sys.stdin.buffer.readline()
        if not line:
            return False
        command = json.loads(line)
        self.delay = command.get("delay", self.delay)
        self.loss = command.get("loss", self.loss)
        self.cut = frozenset(command.get("cut", self.cut))
        print("{}", flush=True)
        return True


@dataclass(frozen=True)
class Host:
    """A process in its own network namespace; it ends when `control` is closed."""

    pid: int
    control: socket.socket
    device: int


def make_host(number: int) -> Host:
    """Raise OSError, naming what is not allowed."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _be_host(number, theirs)
    theirs.close()
    message, descriptors, _, _ = socket.recv_fds(ours, 200, 1)
    if not descriptors:
        raise OSError(message.decode() or "the process of a host ended")
    return Host(pid, ours, descriptors[0])


def _be_host(number: int, control: socket.socket) -> None:
    """Set up the namespace, hand over the device, and keep the namespace alive; never return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _unshare(CLONE_NEWNET | CLONE_NEWUTS)
        socket.sethostname(f"host-{number + 1}")
        device = _open_tun(f"{NETWORK}{number + 1}")
        socket.send_fds(control, [b"up"], [device])
        os.close(device)
        control.recv(1)
    except OSError as error:
        control.send(f"{error.strerror}: {error.filename or 'a network namespace'}".encode())
    finally:
        os._exit(0)


def _open_tun(address: str) -> int:
    """Return a TUN device that is up and has `address`, in this process's namespace."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"wire", IFF_TUN | IFF_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:

        def set_up(request: int, name: bytes, content: bytes) -> None:
            fcntl.ioctl(any_socket, request, struct.pack("16s24s", name, content))

        def as_address(text: str) -> bytes:
            return struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(text))

        set_up(SIOCSIFADDR, b"wire", as_address(address))
        set_up(SIOCSIFNETMASK, b"wire", as_address("255.255.255.0"))
        for name in (b"lo", b"wire"):
            set_up(SIOCSIFFLAGS, name, struct.pack("H", IFF_UP | IFF_RUNNING))
    return device


def _unshare(flags: int) -> None:
    """Call unshare(2), which Python has since 3.12."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _become_root() -> None:
    """Get root's rights in a new user namespace (user_namespaces(7))."""
    user, group = os.getuid(), os.getgid()
    _unshare(CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def main(hosts: int, seed: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests; this program ends with them
    try:
        if os.getuid() != 0:
            _become_root()
        made = [make_host(number) for number in range(hosts)]
    except (OSError, AttributeError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    print(json.dumps({"hosts": [host.pid for host in made]}), flush=True)
    Wire([host.device for host in made], random.Random(seed)).run()
    for host in reversed(made):  # each inherits the ends of the earlier ones
        host.control.close()
        os.waitpid(host.pid, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
