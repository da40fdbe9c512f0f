"""The two sides of a ring, each in a separate process, which a test stops and continues.

    ring_traffic.py write RING WAKE BYTES SEED      appends output, then EXITED
    ring_traffic.py read  RING WAKE                 reads up to EXITED, and prints what it has found, as JSON

RING and WAKE are file descriptors. The output at any offset is a function of the offset. The reader exits
with 3 if it is not woken, with 4 for a wrong byte, and with 5 for a wrong offset.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys

from relay.shim import ring
from relay.shim.ring import RingWriter
from relay.shim.ring_reader import RingReader

HANG = 60.0  # seconds
PERIOD = 65521  # bytes after which the output repeats; a prime
_TWICE = random.Random(0).randbytes(PERIOD) * 2


def expected(offset: int, length: int) -> bytes:
    """Return the output from `offset` on."""
    at = offset % PERIOD
    return _TWICE[at : at + length]


def write(fd: int, wake: int, total: int, seed: int) -> None:
    def up() -> None:
        try:
            os.write(wake, b"x")
        except BlockingIOError:
            pass

    os.set_blocking(wake, False)
    chance = random.Random(seed)
    writer = RingWriter(fd, up)
    test = os.getppid()
    while writer.offset < total and os.getppid() == test:
        if writer.offset == 0 or chance.random() < 0.01:  # sometimes the reader has read everything
            while not writer.words[ring.ARMED] and os.getppid() == test:
                os.sched_yield()
        length = chance.choice((1, 80, 4000, 30000))
        writer.output(expected(writer.offset, length))
        if chance.random() < 0.1:
            writer.append(ring.TYPED, b"key", wake=chance.random() < 0.5)
    writer.append(ring.EXITED, b"0")


def read(fd: int, wake: int) -> None:
    os.set_blocking(wake, False)
    reader, got, lost, records, naps = RingReader(fd), 0, 0, 0, 0
    while True:
        reader.disarm()
        try:
            while os.read(wake, 512):
                pass
        except BlockingIOError:
            pass
        reader.arm()
        while (record := reader.read()) is not None:
            lost += reader.lost
            found = [record]
            if record.kind == ring.OUTPUT:
                found += reader.read_output(record, 1 << 16, lambda *_: True)
            for each in found:
                records += 1
                if each.kind == ring.EXITED:
                    print(json.dumps({"got": got, "lost": lost, "records": records, "naps": naps}))
                    return
                if each.kind == ring.OUTPUT:
                    got += len(each.data)
                    if each.data != expected(each.offset - len(each.data), len(each.data)):
                        sys.exit(4)
                    if got + lost != each.offset:
                        sys.exit(5)
        naps += 1
        if not select.select([wake], [], [], HANG)[0]:
            sys.exit(3)


if __name__ == "__main__":
    role, *numbers = sys.argv[1:]
    {"write": write, "read": read}[role](*map(int, numbers))
