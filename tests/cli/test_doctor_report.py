"""`relay doctor --report`: what it contains, and that nothing private is in it."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from relay import report
from relay.home import Home
from relay.report import PROBLEMS, problems
from relay.scrubber import Scrubber
from support import Relay

WORD = st.text("abcdefghjkmnpqrstuvwxyzABCDEFGHJKMNPQRSTUVWXYZ23456789", min_size=10, max_size=24)


def journal(home: Path, *entries: dict[str, object]) -> None:
    path = Home.from_env({"RELAY_HOME": str(home)}).journal
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def test_a_report_has_what_helps_and_nothing_private(relay: Relay, home: Path) -> None:
    config = home / "config"
    config.mkdir(mode=0o700)
    broker = "mqtts://alice:opensesame1@broker.example.org"
    (config / "relay.toml").write_text(
        f'idle_seconds = 8\nteach = "never"\nchannels = ["#ops"]\nbroker = "{broker}"\n'
    )
    program = home / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho '2.1.330 (Claude Code)'\n")
    program.chmod(0o700)
    journal(
        home,
        {
            "time": 1_760_000_000.5,
            "event": "agent_failed",
            "class": "network",
            "source": "hook",
            "text": "oops",
        },
        {"time": 1_760_000_001, "event": "phase", "phase": "backoff", "code": 3, "name": "Alice"},
        {
            "time": 1_760_000_002,
            "event": "notice",
            "level": "info",
            "text": "internal error in relay, which keeps running: x",
        },
        {"time": 1_760_000_003, "event": "phase", "phase": "up"},
    )
    env = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "TERM": "tmux-256color",
        "TERM_PROGRAM": "WezTerm",
        "TMUX": "/tmp/tmux-1000/default,1,0",
    }
    output = relay("doctor", "--report", env=env).stdout
    lines = output.splitlines()
    for line in (
        "  TERM: tmux-256color",
        "  program: WezTerm",
        "  multiplexer: tmux",
        "  claude: 2.1.330, checked",
        "  idle_seconds: 8",
        "  teach: never",
        "  channels: set (1)",
        "  broker: set (mqtts)",
        "  2025-10-09 08:53:20 agent_failed class=network source=hook",
        "  2025-10-09 08:53:21 phase phase=backoff code=3",
        "  2025-10-09 08:53:22 notice level=mistake",
    ):
        assert line in lines, output
    assert "phase=up" not in output
    for private in ("opensesame1", "alice", "Alice", "broker.example.org", "oops", "#ops", str(home)):
        assert private not in output
    shown = json.loads(relay("doctor", "--report", "--json", env=env).stdout)
    assert shown["versions"].keys() == {"relay", "Python", "SQLite", "libghostty-vt", "nats-server"}
    assert "?" not in shown["versions"].values()
    assert shown["agents"] == [{"name": "claude", "version": "2.1.330", "checked": True}]
    assert shown["settings"]["idle_seconds"] == "8"
    assert [each["event"] for each in shown["problems"]] == ["agent_failed", "phase", "notice"]


def test_paths_are_removed_from_findings(relay: Relay, home: Path) -> None:
    (home / "state").mkdir(mode=0o755)
    (home / "state").chmod(0o755)
    output = relay("doctor", "--report").stdout
    assert "  FAIL directory state: <state> is open to others (755). chmod 700 <state>" in output.splitlines()


def test_a_report_cannot_include_a_broker_check(relay: Relay) -> None:
    done = relay("doctor", "--report", "--broker", check=False)
    assert done.returncode == 2
    assert "leave out --broker" in done.stderr


# Examples are slow, and shrinking them would add nothing.
@settings(
    max_examples=8,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(secrets=st.lists(WORD, min_size=16, max_size=16, unique_by=str.casefold))
def test_planted_secrets_are_not_in_a_report(secrets: list[str]) -> None:
    """Secrets are planted in the environment, settings, a pattern file, names, paths and the journal."""
    left = iter(secrets)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        user = Path(folder, next(left))
        home = user / next(left)
        config = home / "config"
        (config / "patterns").mkdir(parents=True)
        for variable, value in {
            "HOME": str(user),
            "RELAY_HOME": str(home),
            "TERM": f"xterm-{next(left)}",
            "TERM_PROGRAM": next(left),
            "TMUX": f"/tmp/{next(left)},1,0",
            "USER": next(left),
            "LANG": "C.UTF-8",
            "EXAMPLE_API_KEY": next(left),
        }.items():
            patch.setenv(variable, value)
        (config / "relay.toml").write_text(
            f'broker = "mqtt://{next(left)}:{next(left)}@127.0.0.1:1"\n'
            f'escalate_to = "{next(left)}"\nchannels = ["#{next(left).lower()}"]\n'
        )
        project = user / next(left)
        project.mkdir()
        (project / "relay.toml").write_text(f'inject = "{next(left)}"\n')
        (config / "patterns" / f"{next(left)}.toml").write_text(f'name = "{next(left)}"\nchecked = ["1.0"]\n')
        words = [*secrets, *(f"ghp_{secret}" for secret in secrets)]
        keys = (
            "text",
            "name",
            "class",
            "source",
            "level",
            "phase",
            "reason",
            "hook_name",
            "code",
            "error",
            "body",
        )
        events = (*report._WORDS, secrets[0])
        journal(
            home,
            *(
                {"time": number, "event": event, **dict.fromkeys(keys, word)}
                for number, word in enumerate(words)
                for event in events
            ),
            {"time": 1.0, "event": "phase", "phase": "failed", "reason": secrets[0], "code": secrets[0]},
            {"time": secrets[0], "event": "phase", "phase": "failed"},
        )
        (home / "state" / "broker" / "credentials").mkdir(parents=True)
        (home / "state" / "broker" / "credentials" / f"{secrets[1]}.json").touch(0o644)
        found = report.collect(Home.from_env(), project, os.environ)
    output = "\n".join(found.lines()).casefold() + json.dumps(found.public()).casefold()
    assert any(check.name == "credentials" for check in found.findings)
    assert found.problems
    assert [secret for secret in secrets if secret.casefold() in output] == []
    assert folder.casefold() not in output


def test_only_the_latest_problems_are_listed() -> None:
    entries = [{"time": float(number), "event": "terminal_lost"} for number in range(PROBLEMS + 5)]
    assert [problem.time for problem in problems(entries)] == [
        float(number) for number in range(5, PROBLEMS + 5)
    ]


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("/home/ann is full", "~ is full"),
        ("/home/ann/secret plans: no", "~/… plans: no"),
        ("/home/anna/x is another's", "… is another's"),
        ("cannot read /srv/acme/x.toml:3", "cannot read …:3"),
        ("Ann at host-1 (host-1.acme.example)", "<user> at <host> (<host>)"),
        ("annual plans", "annual plans"),
        ("mqtts://a:b@broker.acme.example:8883/x refuses", "mqtts://… refuses"),
        ("key ghp_0123456789abcdefghijklmnopqrstuvwxyz0", "key [secret: github-token]"),
        ("hunter2hunter2 is wrong", "[secret: known] is wrong"),
    ],
)
def test_a_scrubber_removes_private_text(text: str, scrubbed: str) -> None:
    names = {"ann": "<user>", "host-1": "<host>", "host-1.acme.example": "<host>"}
    assert Scrubber({"/home/ann": "~", "/": "root"}, names, ["hunter2hunter2"])(text) == scrubbed
