"""The judge: what is ready, working, prompting and unsafe, by the shipped rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ptyagent import shipped

from relay.injection.port import TtyState
from relay.injection.readiness import QUIET, SCREEN_QUIET, Sight, judge
from relay.injection.waiting import Wait

GENERIC = shipped()
LINES = Sight(
    tty=TtyState(canonical=True, echo=True, icrnl=True, foreground=7, agent_group=7),
    wait=Wait.READ,
    same=False,
    quiet=0.0,
    output_pending=False,
    unwritten=0,
    bracketed_paste=False,
    alternate=False,
    unfinished="> ",
    rows=(),
)
SCREEN = replace(
    LINES,
    tty=replace(LINES.tty, canonical=False, echo=False),
    wait=Wait.POLL,
    quiet=SCREEN_QUIET,
    bracketed_paste=True,
)


def _state(sight: Sight, **changes: object) -> str:
    return str(judge(replace(sight, **changes), GENERIC).state)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "ready"),
        ({"same": True}, "working"),  # it has not read what was typed last
        ({"same": True, "quiet": QUIET}, "ready"),
        ({"wait": Wait.POLL}, "working"),
        ({"wait": Wait.POLL, "quiet": QUIET}, "ready"),
        ({"wait": Wait.UNKNOWN, "quiet": QUIET}, "ready"),
        ({"wait": Wait.BUSY, "quiet": 60.0}, "working"),
        ({"output_pending": True}, "working"),
        ({"unwritten": 1}, "working"),
        ({"alternate": True}, "unsafe"),
        ({"tty": replace(LINES.tty, foreground=8)}, "unsafe"),
        ({"tty": replace(LINES.tty, foreground=0)}, "working"),
        ({"tty": replace(LINES.tty, echo=False)}, "prompting"),
    ],
)
def test_a_line_program(changes: dict[str, object], state: str) -> None:
    assert _state(LINES, **changes) == state


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "ready"),
        ({"quiet": SCREEN_QUIET / 2}, "working"),
        ({"wait": Wait.BUSY}, "working"),
        ({"bracketed_paste": False}, "ready"),
        ({"bracketed_paste": False, "unfinished": "q to quit"}, "unsafe"),
        ({"alternate": True}, "unsafe"),
        ({"rows": ("Allow?", "❯ 1. Yes", "  2. No")}, "prompting"),
        ({"rows": ("Would you like to run it", "Press enter to confirm or esc to cancel")}, "prompting"),
        ({"rows": ("Overwrite the file (y/n)",)}, "prompting"),
        ({"rows": ("❯ 1. Yes", *["said later"] * 12)}, "ready"),
    ],
)
def test_a_program_that_draws_its_input(changes: dict[str, object], state: str) -> None:
    assert _state(SCREEN, **changes) == state


@pytest.mark.parametrize(
    "line",
    [
        "Install? [Y/n] ",
        "Overwrite (yes/no)? ",
        "Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: ",
        "Password: ",
        "Enter passphrase for key '/home/a/.ssh/id': ",
        "[sudo] password for bob: ",
        "Press any key to continue . . .",
        "Hit RETURN",
        "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
        "Which one? ",
        "Select an option: ",
        "Choice [1-3]: ",
        "--More--",
        "本当に？",
        "Continue? > ",
    ],
)
def test_questions(line: str) -> None:
    assert _state(LINES, unfinished=line) == "prompting"
    assert _state(SCREEN, unfinished=line) == "prompting"


@pytest.mark.parametrize("line", ["", "> ", "❯ ", "You: ", "user> ", "Message: ", "Alice says hi", "agent> "])
def test_ordinary_prompts(line: str) -> None:
    assert _state(LINES, unfinished=line) == "ready"


@pytest.mark.parametrize(
    "line",
    [
        "$ ",
        "bob@host:~/src$ ",
        "# ",
        "host% ",
        ">>> ",
        "... ",
        "sqlite> ",
        "shop=# ",
        "shop-> ",
        "(gdb) ",
        "(Pdb) ",
        "In [3]: ",
    ],
)
def test_prompts_of_what_executes(line: str) -> None:
    assert _state(LINES, unfinished=line) == "unsafe"


def test_what_an_agent_says_is_not_a_question_of_the_program() -> None:
    said = ("@relay:Bob Do you want to play?", "1. one", "> 2. two")
    assert _state(LINES, unfinished="", rows=said) == "ready"


def test_an_answered_choice_is_none() -> None:
    assert _state(LINES, rows=("Install? [Y/n] y", "> ")) == "ready"
    assert _state(LINES, rows=("Install? [Y/n]", "> ")) == "prompting"


def test_the_users_opt_in_is_obeyed() -> None:
    shell = shipped("shell")
    assert judge(replace(LINES, unfinished="$ "), shell).state == "unsafe"
    assert judge(replace(LINES, unfinished="$ "), replace(shell, inject="auto")).state == "ready"
