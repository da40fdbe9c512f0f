"""Well-known programs look the same wrapped as without relay."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from emulator import Emulator

from debian import require

Open = Callable[..., Emulator]
Step = tuple[bytes, str]

TEXT = "".join(f"{number:03} the quick brown fox jumps over the lazy dog\n" for number in range(200))

PROMPT = {"PS1": "> "}

# Program, arguments, the start of the cursor's line when it waits for a command, and what is typed then, each
# with the resulting text on the screen.
PROGRAMS: dict[str, tuple[list[str], str, list[Step]]] = {
    "bash": (
        ["--norc", "--noprofile", "-i"],
        "> ",
        [
            (b"printf '\\033[31;1mred\\033[0m \\033[48;5;22mgreen\\033[0m\\n'; ls --color=always /\r", "usr"),
            (b"for i in 1 2 3; do echo line $i; done; stty size\r", "30 100"),
            (b"abc\x7f\x7f\x7fecho \xc3\xa9\xe4\xb8\xad end\r", "é中 end"),
        ],
    ),
    "vim": (
        ["-u", "NONE", "-i", "NONE", "-n", "text"],
        "",
        [
            (b"", "000 the quick"),
            (b":set mouse=a number\r", " 1 000 the quick"),
            (b"50Gohello \x1b", "hello"),
            (b":split\r", "text [+]"),
            (b"Gdd", "198 the quick"),
            (b":1\r", "000 the"),
        ],
    ),
    "less": (
        ["text"],
        "",
        [
            (b"", "000 the quick"),
            (b"/150\r", "150 the quick"),
            (b"G", "199 the quick"),
            (b"g", "000 the quick"),
        ],
    ),
    "python3": (
        ["-q"],
        ">>> ",
        [(b"1 + 2\r", "3"), (b"[n ** 2 for n in range(30)]\r", "841"), (b"1/0\r", "ZeroDivisionError")],
    ),
}


def _play(terminal: Emulator, prompt: str, steps: list[Step]) -> None:
    def prompted() -> bool:
        y = terminal.screen.cursor[1]
        return terminal.screen.rows()[y].text.startswith(prompt.rstrip()) and terminal.screen.cursor[
            0
        ] == len(prompt)

    for keys, shown in steps:
        if prompt:
            terminal.wait(prompted, "the program waits for a command")
        terminal.type(keys)
        terminal.wait_for(shown)
    if prompt:
        terminal.wait(prompted, "the program waits for a command")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_looks_the_same_wrapped_as_alone(
    program: str, terminal: Open, wrap: Open, home: Path
) -> None:
    (home / "text").write_text(TEXT)
    arguments, prompt, steps = PROGRAMS[program]
    command = [sys.executable if program == "python3" else str(require(program)), *arguments]
    alone = terminal(*command, env=PROMPT)
    _play(alone, prompt, steps)
    wrapped = wrap(*command, env=PROMPT)
    _play(wrapped, prompt, steps)
    wrapped.wait(lambda: wrapped.picture() == alone.picture(), "it looks as without relay")


@pytest.mark.parametrize("program", ["top", "htop"])
def test_a_program_that_draws_all_the_time_has_the_same_layout(
    program: str, terminal: Open, wrap: Open
) -> None:
    """Its figures change all the time, but not their places."""
    command = str(require(program))
    alone, wrapped = terminal(command), wrap(command)
    for each in (alone, wrapped):
        each.wait_for("PID")
        each.wait(lambda each=each: len(each.lines()) > 15)

    def header(each: Emulator) -> list[str]:
        each.drain()
        return [re.sub(r"\s+", " ", line) for line in each.lines() if "PID" in line]

    wrapped.wait(lambda: header(alone) == header(wrapped))
    assert wrapped.screen.alternate == alone.screen.alternate
    assert wrapped.screen.cursor_visible == alone.screen.cursor_visible
    wrapped.resize(70, 20)
    wrapped.wait(lambda: 0 < len(wrapped.lines()) <= 20 and wrapped.shows("PID"))
    wrapped.type("q")
    assert wrapped.end() == 0
    assert wrapped.restored()


def test_leaving_the_alternate_screen_shows_the_shell_again(shell: Open, home: Path) -> None:
    (home / "text").write_text(TEXT)
    outer = shell()
    outer.type("clear; echo before\r")
    outer.wait_for("before")
    outer.type(f"relay wrap {require('vim')} -u NONE -i NONE -n text\r")
    outer.wait_for("000 the quick")
    assert outer.screen.alternate
    outer.type(":q!\r")
    outer.wait(lambda: not outer.screen.alternate and outer.prompted())
    assert outer.shows("before")
    assert not outer.shows("the quick")
