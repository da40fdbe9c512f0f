"""Every byte arrives: what the agent writes, and what the user types."""

from __future__ import annotations

import hashlib
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from emulator import Emulator

from support import LONG, Relay, wait_until

pytestmark = pytest.mark.shared_home

Open = Callable[..., Emulator]
FLOOD = 3_000_000 if LONG else 400_000

# Reads the given number of bytes from the keyboard one by one, and prints their checksum.
COUNTER = """
import hashlib, os, sys, tty
tty.setraw(0)
os.write(1, b"reading")
wanted, digest = int(sys.argv[1]), hashlib.sha256()
while wanted:
    data = os.read(0, 1 << 16)
    wanted -= len(data)
    digest.update(data)
os.write(1, b"<" + digest.hexdigest().encode() + b">")
"""


def _random(size: int) -> bytes:
    return random.Random(5).randbytes(size)


MISSED = re.compile(rb"relay: missed some of cat's output[^\r\n]*\r\n")
"""The notice of a session that was too slow: between two lines, or after a bell at the end."""


def _assert_exact(outer: Emulator, data: bytes) -> None:
    """Check that it wrote `data`, plus at most the terminal's restoration and a notice of missed output."""
    shown = MISSED.sub(b"", bytes(outer.output))
    if b"\a" not in data:
        shown = shown.replace(b"\a", b"")
    assert hashlib.sha256(shown[: len(data)]).digest() == hashlib.sha256(data).digest()
    rest = shown[len(data) :]
    assert len(rest) < 300 and rest[:1] in {b"", b"\a", b"\x1b"}


def test_binary_output_is_exact(wrap: Open, home: Path) -> None:
    """NUL, invalid UTF-8, broken sequences, C1: the terminal gets what the agent wrote."""
    data = _random(300_000 if LONG else 150_000)
    (home / "data").write_bytes(data)
    outer = wrap("sh", "-c", "stty -opost; cat data")
    outer.drawing = False
    assert outer.end() == 0
    _assert_exact(outer, data)


def test_a_flood_of_lines_is_exact(wrap: Open, home: Path) -> None:
    line = b"\x1b[32m0123456789 the quick brown fox @relay:nobody\x1b[0m and so on\n"
    data = line * (FLOOD // len(line))
    (home / "data").write_bytes(data)
    outer = wrap("cat", "data")
    outer.drawing = False
    assert outer.end() == 0
    _assert_exact(outer, data.replace(b"\n", b"\r\n"))


def test_a_slow_terminal_loses_nothing_and_does_not_block_the_session(
    wrap: Open, home: Path, relay: Relay
) -> None:
    """While the terminal accepts nothing, the agent blocks, as without relay; the session answers."""
    data = _random(1_000_000 if LONG else 500_000)
    (home / "data").write_bytes(data)
    outer = wrap("-n", "Slow", "sh", "-c", "stty -opost; echo go; cat data; touch done")
    outer.drawing = False
    outer.see("go\n")
    for _ in range(3):
        wait_until(lambda: "Slow" in relay("ps").stdout)
    assert not (home / "done").exists()
    assert outer.end() == 0
    _assert_exact(outer, b"go\n" + data)
    assert (home / "done").exists()


def test_stop_ends_a_session_whose_terminal_accepts_nothing(wrap: Open, relay: Relay) -> None:
    outer = wrap("-n", "Stuck", "sh", "-c", "echo go; cat /dev/zero")
    outer.drawing = False
    outer.see("go\r\n")
    wait_until(lambda: "Stuck" in relay("ps").stdout)
    assert "Stuck has ended" in relay("stop", "Stuck").stdout
    assert outer.end() == 128 + 15


def test_a_large_paste_is_exact(wrap: Open) -> None:
    data = bytes(byte for byte in _random(120_000) if byte != 0x1D)
    outer = wrap(sys.executable, "-c", COUNTER, str(len(data)))
    outer.see("reading")
    outer.type(data)
    outer.see(f"<{hashlib.sha256(data).hexdigest()}>")
    assert outer.end() == 0


def test_typeahead_is_not_lost(wrap: Open, home: Path) -> None:
    """The user types before relay runs, while it starts, and before the agent reads."""
    os.mkfifo(home / "gate")
    outer = wrap("sh", "-c", "echo up; read go < gate; cat > got")
    outer.type("first\r")
    outer.see("up\r\n")
    outer.type("second\r")
    outer.type("thi")
    (home / "gate").write_text("go\n")
    outer.type("rd\r")
    outer.type("\x04")
    assert outer.end() == 0
    assert (home / "got").read_text() == "first\nsecond\nthird\n"


MOUSE = {
    "click": b"\x1b[M !!",
    "SGR": b"\x1b[<0;12;34M\x1b[<0;12;34m",
    "SGR motion": b"\x1b[<35;300;200M",
    "urxvt": b"\x1b[35;12;34M",
    "focus": b"\x1b[I\x1b[O",
    "beyond ASCII": b"\x1b[M \xff\xfe",
    "paste": b"\x1b[200~two\nlines\x1b[201~",
    "keys": b"\x1b[1;5C\x1bOP\x00\x7f\x03\x1a\x1c\x13\x11",
}


def test_mouse_reports_and_modes_pass_unchanged(wrap: Open) -> None:
    modes = b"".join(b"\x1b[?%dh" % mode for mode in (1000, 1002, 1003, 1004, 1005, 1006, 1015, 2004))
    typed = b"".join(MOUSE.values())
    program = (
        "import os, sys, tty; tty.setraw(0); os.write(1, bytes.fromhex(sys.argv[1]) + b'ready');"
        f"data = b''\nwhile len(data) < {len(typed)}: data += os.read(0, 100)\n"
        "os.write(1, b'<' + data.hex().encode() + b'>')"
    )
    outer = wrap(sys.executable, "-c", program, modes.hex())
    outer.see(modes + b"ready")
    assert outer.screen.mode(1003) and outer.screen.mode(1006)
    outer.type(typed)
    outer.see(b"<" + typed.hex().encode() + b">")
    assert outer.end() == 0
    assert outer.restored()
