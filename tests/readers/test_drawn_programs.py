"""Small programs that draw on a real pseudo-terminal, at their own pace."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from relay.directives.grammar import Grammar
from relay.directives.pipeline import TICK, OutputPipeline
from relay.readers.auto import AutoReader

FAKES = Path(__file__).parent.parent / "fakes"


def run(
    command: list[str], *, columns: int = 80, rows: int = 24, typed: Sequence[bytes] = ()
) -> list[tuple[str, str]]:
    """Return the directives that `command` printed in a new terminal until it ended.

    typed: typed one after another, each once there is a directive more.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    pipeline = OutputPipeline(AutoReader(columns, rows), Grammar({"relay"}.__contains__))
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, start_new_session=True):
        os.close(follower)
        found, count = [], 0
        while True:
            if len(found) >= count < len(typed):
                pipeline.typed(typed[count], time.monotonic())
                os.write(leader, typed[count])
                count += 1
            ready, _, _ = select.select([leader], [], [], TICK)
            if ready:
                try:
                    data = os.read(leader, 65536)
                except OSError:  # EIO: the last process with the terminal open has ended
                    break
                found += pipeline.output(data, time.monotonic()).directives
            else:
                found += pipeline.tick(time.monotonic()).directives
        found += pipeline.close(time.monotonic()).directives
    os.close(leader)
    return [(one.target, one.body) for one in found]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    lines = ["Hello.", "@relay:Bob please check the tests", "Some prose that mentions @relay:Nobody in it."]
    lines += [f"filler {n} of the report" for n in range(12)]
    lines += ["@relay:Ann the second", "resize", "@relay:Bob please check the tests", "resize", "Bye."]
    path = tmp_path / "script"
    path.write_text("\n".join(lines))
    return path


EXPECTED = [
    ("Bob", "please check the tests"),
    ("Ann", "the second"),
    ("Bob", "please check the tests"),
]


@pytest.mark.parametrize("size", [(80, 24), (60, 12), (120, 50)])
@pytest.mark.parametrize("fake", ["draw_inline.py", "draw_full.py"])
def test_the_directives_of_a_drawing_program_are_read_exactly(
    fake: str, size: tuple[int, int], script: Path
) -> None:
    """R46."""
    command = [sys.executable, str(FAKES / fake), str(script)]
    assert run(command, columns=size[0], rows=size[1]) == EXPECTED


def test_a_line_typed_into_cat_is_read_once() -> None:
    """R46."""
    assert run(["cat"], typed=[b"@relay:Bob hi\n\x04"]) == [("Bob", "hi")]


def test_the_echo_of_a_silent_program_is_ignored() -> None:
    assert run(["sh", "-c", "read line; read line"], typed=[b"@relay:Bob hi\n\x04"]) == []


def test_the_output_of_a_shells_commands_is_read() -> None:
    # What is erased in the frame in which it came would not count.
    typed = [b"echo @relay:Bob hi\n", b"clear; printf '@relay:Ann %s\\n' ho\n", b"exit\n"]
    assert run(["bash", "--norc", "--noprofile", "-i"], typed=typed) == [("Bob", "hi"), ("Ann", "ho")]
