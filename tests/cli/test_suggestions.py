"""Errors on the command line: their messages, with suggestions only where they help."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.cli.main import COMMANDS, dispatch
from relay.cli.wrap import misplaced, parse
from relay.errors import UsageError
from support import Relay
from terminal.emulator import RELAY, Emulator


def error_of(*argv: str) -> str:
    with pytest.raises(UsageError) as error:
        dispatch([*argv])
    return str(error.value)


SUGGESTIONS = [
    ("htop", "top"),
    ("Watch", "top"),
    ("ls", "ps"),
    ("kill", "stop"),
    ("mesages", "messages"),
    ("attch", "attach"),
    ("list", "ps"),
    ("status", "ps"),
    ("start", "wrap"),
    ("run", "wrap"),
    ("log", "logs"),
    ("mail", "inbox"),
    ("tell", "send"),
    ("remember", "memory save"),
    ("version", "--version"),
]


def test_the_intended_command_is_suggested(subtests: pytest.Subtests) -> None:
    for word, meant in SUGGESTIONS:
        with subtests.test(word):
            expected = f"there is no command {word!r}. Did you mean `relay {meant}`?"
            assert error_of(word).startswith(expected)


@pytest.mark.parametrize("word", ["frobnicate", "compose", "alice", "", "-", "claude"])
def test_an_unfamiliar_word_gets_no_suggestion(word: str) -> None:
    assert error_of(word) == f"there is no command {word!r}. `relay --help` lists the commands."


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("--json ps", "options go after the command: `relay ps --json`."),
        ("-t web ps --all", "options go after the command: `relay ps -t web --all`."),
        ("--to 'a b' messages", "options go after the command: `relay messages --to 'a b'`."),
        ("--json", "unknown option '--json'. Options go after the command."),
    ],
)
def test_a_misplaced_option_is_explained(argv: str, message: str) -> None:
    assert error_of(*shlex.split(argv)).startswith(message)


@pytest.mark.parametrize("command", ["wrap", "ps", "hook", "memory save"])
def test_help_with_a_command_is_that_commands_help(relay: Relay, command: str) -> None:
    words = command.split()
    assert relay("help", *words).stdout == relay(*words, "--help").stdout
    assert relay("help", *words).stdout.startswith(f"usage: relay {command}")


def test_help_without_a_command_is_relays_help(relay: Relay) -> None:
    assert relay("help").stdout == relay("--help").stdout
    run = relay("help", "wrpa", check=False)
    assert (run.returncode, run.stdout) == (2, "") and "Did you mean `relay wrap`?" in run.stderr
    assert "help" not in COMMANDS


def test_a_quoted_command_line_is_detected(relay: Relay) -> None:
    run = relay("wrap", "-d", "cat -u", check=False)
    assert run.returncode == 127
    assert run.stderr == (
        "relay: command not found: 'cat -u'; it is not in PATH. "
        "Remove the quotes around it: `relay wrap cat -u`.\n"
    )
    assert "quotes" not in relay("wrap", "-d", "no-such-program x", check=False).stderr
    assert "quotes" not in relay("wrap", "-d", "no-such-program", check=False).stderr


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (
            "claude -n Zoe",
            "-n Zoe is passed to claude. To name the agent in relay: `relay wrap -n Zoe claude`.",
        ),
        (
            "/opt/claude --continue --name Zoe x",
            "--name Zoe is passed to claude. To name the agent in relay: `relay wrap -n Zoe /opt/claude "
            "--continue x`.",
        ),
        ("-n Ann claude -n Zoe", ""),
        ("claude -p -- -n Zoe", ""),
        ("claude -n", ""),
        ("grep -n Zoe file", ""),
        ("head -n 3", ""),
    ],
)
def test_a_name_after_the_command_is_detected(argv: str, hint: str) -> None:
    """Only for agents: to other programs, -n means something else."""
    assert misplaced(parse(shlex.split(argv))) == hint


@pytest.fixture
def claude(relay: Relay) -> Iterator[Emulator]:
    """Yield a terminal in which `claude` is a program that prints its arguments."""
    folder = relay.home / "bin"
    folder.mkdir()
    (folder / "claude").write_text('#!/bin/sh\necho "got $*"\n')
    (folder / "claude").chmod(0o755)
    environment = relay.environment | {"PATH": f"{folder}:{os.environ['PATH']}", "PS1": "shell> "}
    shell = Emulator(["sh"], environment, cwd=Path(relay.home))
    yield shell
    shell.close()


def test_the_hint_precedes_the_agent_which_still_gets_its_option(claude: Emulator) -> None:
    claude.type(f"{RELAY} wrap claude -n Zoe; echo over\r")
    claude.see("over\r\n", after=claude.see("got"))
    lines = claude.lines()
    at = next(at for at, line in enumerate(lines) if "relay: -n Zoe is passed to claude." in line)
    assert any(line.startswith("got") and line.endswith("-n Zoe") for line in lines[at:])
