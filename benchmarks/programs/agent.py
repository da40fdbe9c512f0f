"""A line agent: says what datagrams to ORDERS tell it to say, reports each line that it reads to TOLD.

agent.py ORDERS TOLD

`{now}` in an order becomes the time of writing, in nanoseconds of CLOCK_MONOTONIC, which all processes share;
before each line that is reported stands the time at which it was read.
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
