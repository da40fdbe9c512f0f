"""`relay completion` in real shells: what Tab completes, and that names are listed fast and safely."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forkserver import shell_command
from relay.cli.command_line import FILES, NAMES, NOTHING, PROGRAMS, complete, level_of
from relay.cli.main import COMMANDS
from relay.control.claiming import claim
from relay.control.name_claim import claimed_names
from relay.errors import HomeError
from relay.home import Home
from relay.storage import locks
from support import Relay
from terminal.emulator import Emulator


def require(shell: str) -> str:
    """Return the path of `shell`. Skip the test if there is none."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not on PATH: its completion was not tested")
    return path


@pytest.fixture
def shell_home(relay: Relay) -> Relay:
    """Return a home in which Alice and Bob are known, with `relay` on PATH and the scripts in files."""
    folder = relay.home / "bin"
    folder.mkdir()
    (folder / "relay").write_text(f'#!/bin/sh\nexec {shell_command()} "$@"\n')
    (folder / "relay").chmod(0o755)
    relay.environment["PATH"] = f"{folder}:{os.environ['PATH']}"
    for shell in ("bash", "zsh", "fish"):
        (relay.home / f"script.{shell}").write_text(relay("completion", shell).stdout)
    (relay.home / "a file").touch()
    return relay


@pytest.fixture
def named(shell_home: Relay) -> Iterator[Relay]:
    home = Home.from_env(shell_home.environment)
    taken = [claim(home, "default", "Alice"), claim(home, "web", "Bob")]
    for each in taken:
        each.note(os.getpid(), os.getpid())
    yield shell_home
    for each in taken:
        each.release()


def in_bash(relay: Relay, line: str) -> list[str]:
    words = [*shlex.split(line), *([""] if line.endswith(" ") else [])]
    code = (
        f"source script.bash; COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; "
        '_relay; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    run = subprocess.run(
        [require("bash"), "--norc", "-c", code],
        env=relay.environment, cwd=relay.home, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return run.stdout.split()


def in_fish(relay: Relay, line: str) -> list[str]:
    code = f"source script.fish; complete -C {shlex.quote(line)}"
    run = subprocess.run(
        [require("fish"), "--no-config", "-c", code],
        env=relay.environment, cwd=relay.home, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [each.split("\t")[0] for each in run.stdout.splitlines()]


CASES = {
    "hoo": ["hook", "hooks"],
    "help pe": ["peek"],
    "memory s": ["save", "search"],
    "broker credentials ex": ["export"],
    "peek --": ["--ansi", "--help", "--json", "--team"],
    "messages --state in": ["injected"],
    "completion f": ["fish"],
    "attach ": ["Alice", "Bob"],
    "attach -t web --view B": ["Bob"],
    "logs --team Alice A": ["Alice"],
    "answer Alice A": [],
    "stop Alice B": ["Bob"],
    "messages --to A": ["Alice"],
    "send A": ["Alice"],
    "send Alice A": [],
    "wrap -n A": [],
    "wrap cat --j": [],
    "agents reset A": [],
}


@pytest.mark.parametrize("complete", [in_bash, in_fish], ids=["bash", "fish"])
def test_the_next_word_is_completed(named: Relay, complete: Callable[[Relay, str], list[str]]) -> None:
    for line, expected in CASES.items():
        assert sorted(complete(named, f"relay {line}")) == sorted(expected), line


def test_programs_and_files_are_completed_where_they_are_expected(named: Relay) -> None:
    assert "mkfifo" in in_bash(named, "relay wrap mkfif")
    assert "mkfifo" in in_fish(named, "relay wrap mkfif")
    assert [path.replace("\\", "") for path in in_fish(named, "relay trust a")][:1] == ["a file"]


TABS = [
    ("relay rest\t", "relay restart "),
    ("relay peek Al\t", "relay peek Alice "),
    ("relay ps --al\t", "relay ps --all "),
    ("relay memory sea\t", "relay memory search "),
    ("relay trust a\\ fi\t", "relay trust a\\ file "),
]

START = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
}
SOURCE = {
    "bash": "source script.bash",
    "zsh": "autoload -U compinit; compinit -u -D; source ./script.zsh",
}


@pytest.mark.parametrize("shell", START)
def test_tab_completes(named: Relay, shell: str) -> None:
    environment = named.environment | {"PS1": "shell> "}
    terminal = Emulator([require(shell), *START[shell]], environment, cwd=named.home)
    try:
        terminal.type(f"{SOURCE[shell]}; PS1='shell> '; echo rea''dy\r")
        terminal.see("ready\r\n")
        for typed, completed in TABS:
            terminal.wait(terminal.prompted)
            terminal.type(typed)
            terminal.wait(
                lambda completed=completed: f"shell> {completed}".rstrip() in terminal.lines()[-1],
                f"{typed!r} became {completed!r}",
            )
            terminal.type(b"\x15")  # Ctrl-U clears the line
    finally:
        terminal.close()


def test_a_zsh_script_works_as_an_autoloaded_function(named: Relay) -> None:
    folder = named.home / "functions"
    folder.mkdir()
    (named.home / "script.zsh").rename(folder / "_relay")
    terminal = Emulator([require("zsh"), "-f", "-i"], named.environment, cwd=named.home)
    try:
        terminal.type(
            "fpath=($PWD/functions $fpath); autoload -U compinit; compinit -u -D; PS1='shell> '; clear\r"
        )
        terminal.wait(lambda: terminal.lines()[:1] == ["shell>"], "a cleared screen")
        terminal.type("relay peek Bo\t")
        terminal.wait(lambda: terminal.lines()[-1].startswith("shell> relay peek Bob"), "Bob was completed")
    finally:
        terminal.close()


def test_levels_cover_every_command_and_option() -> None:
    assert [word for word, _ in level_of("").words] == [*COMMANDS, "help"]
    assert all(level_of(each).path == each for each in COMMANDS)
    assert level_of("broker credentials").words and level_of("memory save").repeats
    wrap = level_of("wrap")
    kinds = {option.flags[-1]: option.kind for option in wrap.options}
    assert (kinds["--rules"], kinds["--name"], kinds["--detach"]) == (FILES, NOTHING, None)
    assert wrap.arguments == (PROGRAMS,)
    assert level_of("send").arguments == (NAMES, NOTHING)


def test_a_shell_gets_words_with_their_help() -> None:
    assert "wrap\tRun an agent as a member of the team" in complete([""])
    assert "--help\tshow this help message and exit" in complete(["ps", "--"])
    assert complete(["trust", ""]) == [":files"] and complete(["wrap", ""]) == [":programs"]
    assert complete([]) == complete([""]) and complete(["no-such-command", ""]) == []


def test_names_are_listed_without_a_session(named: Relay) -> None:
    assert named("__complete", "peek", "").stdout == "Alice\nBob\n"


def test_only_held_claims_in_the_users_own_home_are_listed(relay: Relay) -> None:
    assert relay("__complete", "peek", "").stdout == "\n"
    home = Home.from_env(relay.environment).ensure()
    folder = Path(home.run) / "sessions" / "default"
    folder.mkdir(parents=True)
    (folder / "gone.lock").write_text("1 1 Gone default 1")
    odd = folder / "odd.lock"
    odd.write_text("1 1 $(reboot) default 1")
    descriptor = locks.open_lock(odd)
    assert locks.try_lock(descriptor)
    assert claimed_names(home) == ["odd"], "an invalid name is not printed"
    os.close(descriptor)
    if os.getuid() == 0:
        os.chown(home.run, 12345, -1)
        with pytest.raises(HomeError):
            claimed_names(home)
        os.chown(home.run, 0, -1)
