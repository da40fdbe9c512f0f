"""The manual documents every key that a command prints with `--json`, and no other.

docsite.json_keys has its tables; tests/test_docsite.py tests that the man page has them.
"""

from __future__ import annotations

import json
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cli.test_answer import AskingAgent
from cli.test_audit_command import HOOK, MESSAGE, _write
from cli.test_command_line_rules import parsers
from cli.test_inspect import cast
from cli.test_service import Systemd
from cli.test_usage_command import log
from docsite.json_keys import OUTPUTS
from relay import data
from relay.agents.rate_limits import LimitWindow, RateLimits
from relay.agents.usage import Spent, Tokens
from relay.home import Home
from relay.supervision.accounts import AccountHold, Accounts
from session.fake_agent import FakeAgent, ps
from support import Relay, wait_until

SOMETIMES = "only "
"""The beginning of the description of a key that is not always present."""

RULES = {"hooks": {"Stop": [{"matcher": "*", "hooks": [{"type": "command", "command": "true"}]}]}}
RELAY = shlex.join([sys.executable, "-m", "relay"])


def documented() -> dict[str, dict[str, str]]:
    """Return the meaning of each key, by command: `ps`, `replay NAME --events`, ...

    A nested key follows its parent's key and a dot; `*` is any key.
    """
    return {command: output.meanings() for output in OUTPUTS for command in output.commands}


def keys_of(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield the keys of a JSON value, in the notation of `documented`."""
    if isinstance(value, list):
        for each in value:
            yield from keys_of(each, prefix)
    elif isinstance(value, dict):
        for key, below in value.items():
            yield prefix + key
            yield from keys_of(below, f"{prefix}{key}.")


def matches(key: str, pattern: str) -> bool:
    parts, wanted = key.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(
        wanted_part in ("*", part) for part, wanted_part in zip(parts, wanted, strict=True)
    )


# Preparations for a command.


def running(relay: Relay) -> None:
    relay("wrap", "-d", "-n", "Ann", "cat")


def ended(relay: Relay) -> None:
    fake = FakeAgent(relay, "Ann").wrap()
    fake.say("Tuesday")
    wait_until(lambda: "Tuesday" in relay("logs", "Ann").stdout)
    fake.exit()
    wait_until(lambda: not ps(relay))


def waiting(relay: Relay) -> None:
    """Send a message to an agent that is not running."""
    running(relay)
    relay("stop", "Ann", "--now")
    relay("send", "Ann", "one")


def held(relay: Relay) -> None:
    waiting(relay)
    with sqlite3.connect(relay.home / "state" / "ledger.db") as ledger:
        ledger.execute("UPDATE messages SET state = 'held'")


def used(relay: Relay) -> None:
    log(relay, "Ann", "work").write(
        1, {"m": Spent(Tokens(1), 1.0)}, RateLimits(1.0, (LimitWindow(300, 7.0, 9e9),))
    )
    home = Home.from_env(relay.environment)
    Accounts(home).hold(AccountHold("work", "usage_limit", "spent", "Ann", 1.0, 9e9))


def audited(relay: Relay) -> None:
    _write(relay, HOOK, MESSAGE)


def asking(relay: Relay) -> None:
    AskingAgent(relay)
    wait_until(lambda: "question" in relay("inbox", "--json").stdout)


def cast_file(relay: Relay) -> None:
    cast(relay.home / "a.cast", [0.5, "o", "\x1b[H@relay:Bob hi\r\n"], [9.0, "o", "x"])


def screen_file(relay: Relay) -> None:
    (relay.home / "screen.txt").write_text("> \n")


def fleet(relay: Relay) -> None:
    (relay.home / "relay.toml").write_text(
        '[fleet]\nstart_interval = 0\nspawn = true\n[agents.Ann]\nrun = ["sh", "-c", "cat"]\n'
    )
    relay("trust", "relay.toml")


def service(relay: Relay) -> None:
    Systemd(relay).set("linger", "no")
    fleet(relay)


def with_rules(relay: Relay) -> None:
    (relay.home / "hooks.json").write_text(json.dumps(RULES))
    relay("trust", "hooks.json")
    running(relay)


def pattern(relay: Relay) -> None:
    text = (data.directory("patterns") / "claude.toml").read_text("utf-8")
    (relay.home / "claude.toml").write_text(text.replace('checked = ["', 'checked = ["999.0.1", "', 1))


def memories(relay: Relay) -> None:
    relay("memory", "save", "--metadata", "a=b", "dark mode")
    (relay.home / "memories").write_text(relay("memory", "export").stdout)


def spawner(relay: Relay) -> None:
    """Have an agent start and end another one, each with --json."""
    script = f"{RELAY} spawn --json Bob Ann > spawned && {RELAY} release Bob --json > released; cat"
    (relay.home / "relay.toml").write_text(
        "[fleet]\nstart_interval = 0\nspawn = true\n"
        f"[agents.Lead]\nrun = {json.dumps(['sh', '-c', script])}\n"
        "[agents.Ann]\nrun = 'cat'\nautostart = false\n"
    )
    relay("trust", "relay.toml")
    relay("up")
    wait_until(lambda: (relay.home / "released").exists() and (relay.home / "released").read_text())


CASES: dict[str, tuple[Callable[[Relay], None] | None, str]] = {
    "ps": (running, "ps --json"),
    "next": (asking, "next --json"),
    "inbox": (asking, "inbox --json"),
    "messages": (waiting, "messages --json"),
    "events": (waiting, "events --json"),
    "send": (running, "send --json Ann hello"),
    "trust": (fleet, "trust --json"),
    "up": (fleet, "up --json"),
    "down": (fleet, "down --json"),
    "spawn": (spawner, "spawned"),
    "release NAME": (spawner, "released"),
    "release": (held, "release --json --all"),
    "drop": (waiting, "drop --json {id}"),
    "retry": (waiting, "retry --json {id}"),
    "forget": (waiting, "forget --json Ann"),
    "join": (None, "join --json ops"),
    "channels": (None, "channels --json"),
    "leave": (None, "leave --json ops"),
    "audit": (audited, "audit --json"),
    "logs": (ended, "logs --json Ann"),
    "peek": (running, "peek --json Ann"),
    "reload": (running, "reload --json Ann"),
    "restart": (running, "restart --json Ann"),
    "explain": (running, "explain --json Ann"),
    "top": (running, "top --json"),
    "hold": (running, "hold --json Ann"),
    "stop": (running, "stop --json Ann"),
    "usage": (used, "usage --json"),
    "answer": (asking, "answer --json Alice 1"),
    "inspect": (cast_file, "inspect --json a.cast"),
    "inspect --screen": (screen_file, "inspect --json --agent claude --screen screen.txt"),
    "replay": (ended, "replay --json"),
    "replay NAME --events": (ended, "replay --json Ann --events"),
    "replay NAME --search": (ended, "replay --json Ann --search Tuesday"),
    "replay NAME --screen": (ended, "replay --json Ann --screen 0"),
    "resume": (ended, "resume --json Ann"),
    "agents": (None, "agents --json"),
    "agents update": (pattern, "agents update --json claude.toml"),
    "agents reset": (pattern, "agents reset --json"),
    "doctor": (None, "doctor --json"),
    "doctor --report": (None, "doctor --json --report"),
    "hooks list": (with_rules, "hooks list --json"),
    "hooks test": (with_rules, "hooks test Stop"),
    "hooks disable": (with_rules, "hooks disable --json hooks.json:1"),
    "hooks enable": (with_rules, "hooks enable --json hooks.json:1"),
    "hooks reload": (with_rules, "hooks reload --json"),
    "init": (None, "init --json new"),
    "service install": (service, "service install --json"),
    "service status": (service, "service status --json"),
    "service remove": (service, "service remove --json"),
    "broker status": (None, "broker status --json"),
    "broker start": (None, "broker start --json"),
    "broker stop": (None, "broker stop --json"),
    "broker acl": (None, "broker acl mosquitto --json Bob"),
    "broker credentials export": (None, "broker credentials export --json -o bob.json Bob"),
    "broker credentials import": (None, "broker credentials import --json bob.json"),
    "memory save": (None, "memory save --json --metadata a=b light mode"),
    "memory search": (None, "memory search --json light"),
    "memory list": (None, "memory list --json"),
    "memory export": (None, "memory export --json"),
    "memory forget": (None, "memory forget --json {memory}"),
    "memory import": (memories, "memory import --json memories"),
}
"""How each command is prepared and run; for the two that agents run, the file with the output.

Those with the same preparation share a home, and run in this order: `memory list` after `memory save`.
"""


def printed(relay: Relay, line: str) -> Any:
    """Run a command and return its output: one JSON value, or a list with one from each line."""
    if " " not in line:
        return json.loads((relay.home / line).read_text())
    if "{id}" in line:
        line = line.replace("{id}", json.loads(relay("messages", "--json").stdout)[0]["id"])
    if "{memory}" in line:
        line = line.replace("{memory}", json.loads(relay("memory", "list", "--json").stdout)[0]["id"])
    run = relay(*shlex.split(line), input="{}", check=False)
    assert run.returncode in (0, 1), run.stderr
    try:
        return json.loads(run.stdout)
    except json.JSONDecodeError:
        return [json.loads(each) for each in run.stdout.splitlines()]


@pytest.mark.parametrize("prepare", dict.fromkeys(prepare for prepare, _ in CASES.values()))
def test_the_keys_of_each_command_are_documented(
    prepare: Callable[[Relay], None] | None, relay: Relay, subtests: pytest.Subtests
) -> None:
    if prepare is not None:
        prepare(relay)
    for command, (needed, line) in CASES.items():
        if needed is prepare:
            with subtests.test(command):
                _check(command, printed(relay, line))


def _check(command: str, value: Any) -> None:
    """Compare the keys of what `command` has printed with those in the manual."""
    keys, known = set(keys_of(value)), documented()[command]
    assert keys, "it prints nothing"
    undocumented = {key for key in keys if not any(matches(key, pattern) for pattern in known)}
    assert undocumented == set(), json.dumps(value, indent=2)
    missing = {
        pattern
        for pattern, description in known.items()
        if not description.startswith(SOMETIMES)
        and not any(matches(key, pattern) for key in keys)
        and ("." not in pattern or any(key.startswith(f"{pattern.rpartition('.')[0]}.") for key in keys))
    }
    assert missing == set(), json.dumps(value, indent=2)


def test_each_command_with_json_is_documented() -> None:
    have = {path for path, parser in parsers() if "--json" in parser._option_string_actions}
    assert have <= documented().keys() == CASES.keys()
