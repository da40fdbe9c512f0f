"""Echo keys in raw mode until Ctrl-D; with a number as argument, also print that many bytes a second.

It prints lines like those of agents and their tools: plain, coloured and with an `@`, all in lower case, so
an upper-case letter is an echo.
"""

import os
import select
import sys
import time
import tty

LINES = (
    b"a line of plain text, as cat prints it from some log or other source file\r\n"
    b"\x1b[32mtest_one\x1b[0m \x1b[1mpassed\x1b[0m in some file or other [ 12%]\r\n"
    b"an address like me@example.org in a line, and an @attribute beside it\r\n"
)
PERIOD = 0.002  # seconds between two writes

rate = int(sys.argv[1]) if len(sys.argv) > 1 else 0
piece = (LINES * (int(rate * PERIOD) // len(LINES) + 1))[: int(rate * PERIOD)]
piece = piece[: piece.rfind(b"\n") + 1]
tty.setraw(0)
os.write(1, b"READY")
due = time.monotonic()
while True:
    if select.select([0], [], [], max(0.0, due - time.monotonic()) if piece else None)[0]:
        keys = os.read(0, 1024)
        if not keys or b"\x04" in keys:
            break
        os.write(1, keys)
    if piece and time.monotonic() >= due:
        due = max(due + PERIOD, time.monotonic() - 0.1)
        os.write(1, piece)
