"""A line agent: prints what datagrams to ORDERS say, and reports each line it reads to TOLD.

agent.py ORDERS TOLD

`{now}` in an order becomes the time of writing, in nanoseconds of CLOCK_MONOTONIC, which all processes share.
Each reported line begins with the time it was read.
"""

import os
import socket
import sys
import threading
import time

orders = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
orders.bind(sys.argv[1])
told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
told.connect(sys.argv[2])


def speak() -> None:
    while text := orders.recv(1 << 16):
        os.write(1, text.replace(b"{now}", b"%d" % time.monotonic_ns()))


threading.Thread(target=speak, daemon=True).start()
for line in sys.stdin.buffer:
    told.send(b"%d " % time.monotonic_ns() + line)
