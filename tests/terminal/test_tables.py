"""Lists in a user's terminal are cut to its width, never wrapped; in a pipe they are complete."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable

import pytest
from emulator import Emulator

from cli.test_audit_command import HOOK, _write
from cli.test_usage_command import log
from relay.agents.usage import Spent, Tokens
from relay.columns import columns_of
from support import Relay

Open = Callable[..., Emulator]

LONG = "王小明说：今天下雨。 🇩🇪 👍🏽 and a text for which sixty columns have no room at all, END"
LISTS = ["ps", "channels", "messages", "agents", "usage", "audit", "memory list", "replay"]
SGR = re.compile(r"\x1b\[[0-9;]*m")


def fill(relay: Relay) -> None:
    """Put a long entry into each of the lists."""
    folder = relay.home / f"{'王小明' * 12}-END"
    folder.mkdir()
    relay("wrap", "-d", "-n", "Ann", "cat", cwd=folder)
    relay("wrap", "-d", "-n", "A-rather-long-name", "sh", "-c", f": {LONG}; cat")
    for number in range(12):
        relay("join", "-n", f"Member{number}", "ops")
    relay("join", "-n", "END", "ops")
    relay("send", "--from", "A-rather-long-name", "you", LONG)
    relay("send", "--from", "Ann", "you", "short")
    relay("inbox", "done", "--all")
    log(relay, "Ann", "小" * 30).write(1, {"m": Spent(Tokens(1_234_567, 10), 1.5)})
    _write(relay, HOOK, HOOK)
    relay("memory", "save", LONG)
    kept = json.loads(relay("memory", "export").stdout)
    chinese = {**kept, "id": "zzzz", "agent": "小明"}
    relay("memory", "import", "-", input=json.dumps(chinese))


def lines(emulator: Emulator) -> list[str]:
    """Return what the program has printed, once it has ended."""
    assert emulator.end() == 0
    return bytes(emulator.output).decode().removesuffix("\r\n").split("\r\n")


def test_lists_are_cut_to_the_width_of_the_terminal_but_complete_in_a_pipe(
    relay: Relay, terminal: Open
) -> None:
    fill(relay)
    for command in LISTS:
        whole = relay(*command.split()).stdout.splitlines()
        assert max(map(columns_of, whole)) > 60, command
        if command not in {"usage", "agents", "audit"}:
            assert any("END" in line for line in whole), command
        shown = terminal(sys.executable, "-m", "relay", *command.split(), columns=60, rows=40)
        printed = [SGR.sub("", line) for line in lines(shown)]
        assert len(printed) == len(whole), command
        assert max(map(columns_of, printed)) <= 60
        assert any("…" in line for line in printed)
        rows = shown.screen.rows()
        assert [row.text.rstrip() for row in rows[: len(printed)]] == [line.rstrip() for line in printed]
        assert not any(row.wrapped for row in rows), command


def test_the_columns_variable_sets_the_width(relay: Relay, terminal: Open) -> None:
    relay("send", "--from", "Ann", "you", LONG)
    (line,) = lines(terminal(sys.executable, "-m", "relay", "messages", env={"COLUMNS": "40"}))
    assert columns_of(SGR.sub("", line)) == 40
    assert LONG in relay("messages", env={"COLUMNS": "40"}).stdout


@pytest.mark.parametrize(
    ("variable", "coloured"), [("A=B", True), ("NO_COLOR=1", False), ("TERM=dumb", False)]
)
def test_ok_is_green_in_a_colour_terminal(
    variable: str, coloured: bool, relay: Relay, terminal: Open
) -> None:
    doctor = terminal("env", variable, sys.executable, "-m", "relay", "doctor")
    shown = lines(doctor)
    assert any(line.startswith("\x1b[32mok") for line in shown) == coloured
    assert any("\x1b[" in line for line in shown) == coloured
    assert "\x1b" not in relay("doctor").stdout


def test_the_doctors_advice_is_complete_in_a_narrow_terminal(relay: Relay, terminal: Open) -> None:
    (relay.home / "config").mkdir()
    (relay.home / "config" / "relay.toml").write_text("idle_secnds = 3\n")
    whole = relay("doctor", check=False).stdout
    advice = next(line for line in whole.splitlines() if "idle_secnds" in line).split(None, 1)[1]
    shown = terminal(sys.executable, "-m", "relay", "doctor", columns=60, rows=60)
    shown.end()
    assert not any(row.wrapped for row in shown.screen.rows())
    assert advice in " ".join(" ".join(shown.lines()).split())


def test_followed_messages_are_cut_too(relay: Relay, terminal: Open) -> None:
    relay("send", "--from", "Ann", "you", LONG)
    following = terminal(sys.executable, "-m", "relay", "messages", "-f", columns=60)
    following.wait_for("…")
    relay("send", "--from", "Ann", "you", "another")
    following.wait_for("another")
    assert not any(row.wrapped for row in following.screen.rows())
    following.type("\x03")
    assert following.end() == 130
