"""The speed of the readers: CPU seconds for each kind of output, and the resulting rates.

python -m benchmarks.readers [--quick]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from relay.readers.auto import AutoReader

SIZE = 200_000_000
CHUNK = 65536

PLAIN = b"a line of plain text, as cat prints it from some log or other source file\r\n"
MARKED = b"an address like me@example.org in every line, and an @attribute beside it\r\n"
COLOURED = b"\x1b[32mtest_one\x1b[0m \x1b[1mPASSED\x1b[0m in some file or other [ 12%]\r\n"
DIRECTIVE = b"@relay:Bob a message of ordinary length that is to be delivered to Bob\r\n"

CASES = {
    "plain text": (PLAIN, SIZE, b""),
    "an @ in every line": (MARKED, SIZE, b""),
    "colours": (COLOURED, SIZE // 4, b""),
    "a directive in every line": (DIRECTIVE, SIZE // 20, b""),
    "plain text in a program that draws": (PLAIN, SIZE // 4, b"\x1b[2J"),
    "colours in a program that draws": (COLOURED, SIZE // 20, b"\x1b[2J"),
}


def chunks(line: bytes, size: int) -> Iterator[bytes]:
    block = line * (CHUNK // len(line) + 2)
    for at in range(0, size, CHUNK):
        start = at % len(line)
        yield block[start : start + CHUNK]


def main(arguments: list[str]) -> None:
    share = 100 if arguments == ["--quick"] else 1
    print(f"{'output':<38} {'MB':>5} {'CPU s':>7} {'MB/s':>7}")
    for name, (line, size, before) in CASES.items():
        reader = AutoReader(120, 40)
        reader.feed(before, 0)
        now = 0.0
        started = time.process_time()
        size //= share
        for chunk in chunks(line, size):
            now += 0.001
            reader.feed(chunk, now)
        seconds = time.process_time() - started
        print(f"{name:<38} {size / 1e6:>5.1f} {seconds:>7.2f} {size / 1e6 / seconds:>7.0f}")


if __name__ == "__main__":
    main(sys.argv[1:])
