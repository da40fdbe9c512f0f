"""Configuration errors are shown before an agent draws over them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from emulator import Emulator

from relay.home import Home
from relay.hooks.trust import Trust
from relay.session import preflight
from session.fake_agent import events
from support import Relay, wait_until

Open = Callable[..., Emulator]

DRAWS = "import os, sys\nos.write(1, b'\\x1b[?1049h\\x1b[2J\\x1b[Hdrawn')\nsys.stdin.readline()\n"


@pytest.fixture
def claude(home: Path) -> list[str]:
    """Return a full-screen program named claude."""
    (home / "claude").write_text(f"#!{sys.executable}\n{DRAWS}")
    (home / "claude").chmod(0o700)
    return ["./claude"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("relay.config.py", "import relay\n", "relay.config.py is not trusted, so it does not run."),
        ("relay.toml", "idle_seconds = \n", "relay.toml:1: "),
        ("relay.toml", 'broker = "mqtt://elsewhere"\n', "broker ignored, because the file is not trusted"),
        ("hooks.json", json.dumps({"hooks": {}}), "hooks.json"),
    ],
)
def test_a_configuration_error_is_shown_first_and_once(
    wrap: Open, relay: Relay, home: Path, claude: list[str], name: str, text: str, message: str
) -> None:
    (home / name).write_text(text)
    outer = wrap("-n", "Alice", *claude)
    outer.see("drawn")
    before = outer.output[: outer.output.index(b"\x1b[?1049h")]
    assert message.encode() in before
    outer.type("\r")
    outer.end()
    assert outer.output.count(b"relay: ") == before.count(b"relay: ") == 1
    # Its session may still have been starting when the agent ended.
    wait_until(lambda: any(message in event["text"] for event in events(relay) if event["event"] == "notice"))


@pytest.mark.parametrize("ends", [False, True])
def test_a_configuration_error_is_shown_before_any_program_starts(
    relay: Relay, home: Path, ends: bool
) -> None:
    """Detached or not, and even if the program ends before its session has begun."""
    (home / "hooks.json").write_text("{}")
    options, command = ([], ["true"]) if ends else (["-d"], ["cat"])
    done = relay("wrap", *options, "-n", "Alice", *command, cwd=home)
    assert done.returncode == 0
    assert done.stderr.startswith("relay: ") and "hooks.json: is not trusted" in done.stderr.splitlines()[0]


def test_an_unknown_kind_of_agent_is_refused(relay: Relay) -> None:
    done = relay("wrap", "-d", "-n", "Alice", "--agent", "cluade", "cat", check=False)
    assert done.returncode == 2
    assert "unknown agent profile 'cluade'. Did you mean claude? `relay agents` lists" in done.stderr
    assert "Alice" not in relay("ps", "-a").stdout


def test_without_an_error_nothing_is_shown(wrap: Open, home: Path, claude: list[str]) -> None:
    (home / "relay.toml").write_text("idle_seconds = 5\n")
    outer = wrap("-n", "Alice", *claude)
    outer.see("drawn")
    assert b"relay: " not in outer.output


def test_a_configuration_without_an_error_is_checked_again_once_it_changes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B6: the check takes a quarter of a second, which a command that is run often would pay each time."""
    place = Home.from_env({"RELAY_HOME": str(home)}).ensure()
    monkeypatch.chdir(home)
    (home / "relay.toml").write_text("idle_seconds = 5\n")

    def check() -> list[str]:
        return preflight.check(place, os.environ, "", ())

    assert check() == []
    monkeypatch.setattr(preflight, "notices", lambda config, rules: ["checked"])
    assert check() == []
    (home / "relay.toml").write_text("idle_seconds = 6\n")
    assert check() == check() == ["checked"]
    monkeypatch.setattr(preflight, "notices", lambda config, rules: [])
    assert check() == []
    Trust(place).grant(home / "relay.toml", b"")
    monkeypatch.setattr(preflight, "notices", lambda config, rules: ["trust has changed"])
    assert check() == ["trust has changed"]
