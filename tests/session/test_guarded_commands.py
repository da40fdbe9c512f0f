"""Which commands relay refuses to a daemon that an agent started."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgers import post
from relay.cli.main import COMMANDS
from relay.home import Home
from relay.messaging.ledger import Ledger
from session.fake_agent import FakeAgent, events, ps
from support import LONG, Relay, wait_until

DAEMON = """
import contextlib, json, os, subprocess, sys

folder, tests = sys.argv[1:]
if os.fork():
    os._exit(0)
os.setsid()
child = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == child:
    pass
sys.path.insert(0, tests)
import forkserver

forkserver.install()
clean = {name: value for name, value in os.environ.items() if name == "RELAY_HOME" or name[:5] != "RELAY"}
said = {}
with open(folder + "/commands") as file:
    commands = json.load(file)
for command in commands:
    ours, theirs = os.openpty()
    program = subprocess.Popen(
        [*forkserver.COMMAND, *command.split()], stdin=theirs, stdout=theirs, stderr=theirs, env=clean,
        cwd=folder, start_new_session=True, preexec_fn=forkserver.take_terminal,
    )
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # EIO at the end
        while data := os.read(ours, 1 << 16):
            text += data
    os.close(ours)
    said[command] = [program.wait(), text.decode()]
with open(folder + "/part", "w") as file:
    json.dump(said, file)
os.rename(folder + "/part", folder + "/said")
"""
"""The daemon: forks twice, with its own session, environment and, for each command, terminal.

Its commands come from a fork server below it.
"""

MAY_NOT = "an agent may not"
ITSELF = "this runs inside the agent"

REFUSED = {
    "attach Bob": MAY_NOT,
    "attach --takeover Bob": MAY_NOT,
    "attach --view Bob": MAY_NOT,
    "next": MAY_NOT,
    "top": MAY_NOT,
    "top --json": MAY_NOT,
    "web": MAY_NOT,
    "hold Bob": MAY_NOT,
    "inbox": "the inbox is the user's",
    "inbox --follow": "the inbox is the user's",
    "inbox show 0": "the inbox is the user's",
    "inbox done --all": "the inbox is the user's",
    "inbox test": "the inbox is the user's",
    "peek Bob": MAY_NOT,
    "logs Bob": MAY_NOT,
    "answer Bob": MAY_NOT,
    "answer Bob yes": MAY_NOT,
    "stop Bob": MAY_NOT,
    "stop --now Bob": MAY_NOT,
    "stop --all": MAY_NOT,
    "restart Bob": MAY_NOT,
    "restart --now Bob": MAY_NOT,
    "resume Bob": MAY_NOT,
    "forget Bob": MAY_NOT,
    "forget --all": MAY_NOT,
    "up": MAY_NOT,
    "down": MAY_NOT,
    "spawn --by Bob Eve sh": "an agent starts others with",
    "reload Bob": MAY_NOT,
    "reload --all": MAY_NOT,
    "send --from Bob Mallory forged": ITSELF,
    "messages --team other": ITSELF,
    "retry {id}": "an agent cannot change another agent's message",
    "retry --to Mallory {id}": "an agent cannot change another agent's message",
    "drop {id}": "an agent cannot change another agent's message",
    "drop --held": "An agent can drop only its own",
    "release {id}": "An agent cannot release them",
    "release --all": "An agent cannot release them",
    "join --name Bob team": ITSELF,
    "leave --name Bob team": ITSELF,
    "channels --team other": ITSELF,
    "memory list --name Bob": ITSELF,
    "memory save --name Bob forged": ITSELF,
    "events Bob": ITSELF,
    "audit --to Bob": ITSELF,
    "usage Bob": ITSELF,
    "service install": MAY_NOT,
    "service remove": MAY_NOT,
    "service status": MAY_NOT,
    "replay Bob": ITSELF,
    "agents update new.toml": MAY_NOT,
    "agents reset": MAY_NOT,
    "trust relay.config.py": MAY_NOT,
    "hooks disable rule.py": MAY_NOT,
    "hooks enable rule.py": MAY_NOT,
    "hooks reload Bob": MAY_NOT,
    "broker start": MAY_NOT,
    "broker stop": MAY_NOT,
    "broker acl nats Bob": MAY_NOT,
    "broker credentials export -o keys Bob": MAY_NOT,
    "doctor --broker": MAY_NOT,
}

HARMLESS = {"wrap", "ps", "explain", "inspect", "hook", "mcp", "completion", "init", "demo"}
"""They show only what every agent may know, change nothing of another agent, or are called by hooks."""


def test_each_command_is_refused_to_agents_or_known_to_be_harmless() -> None:
    assert {command.split()[0] for command in REFUSED} | HARMLESS == set(COMMANDS)


def as_root(relay: Relay) -> Relay:
    return relay


def as_other_user(relay: Relay) -> Relay:
    """Return the same without root's rights, in a namespace where the home's owner is not root."""
    other = Relay(relay.home)
    other.command = ["unshare", "--user", "--map-user=1000", "--map-group=1000", *relay.command]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*other.command, "--version"], check=False).returncode
    ):
        pytest.skip("this user may not make a user namespace")
    return other


@pytest.mark.timeout(400)
@pytest.mark.skipif(sys.platform != "linux", reason="no process can adopt others there")
@pytest.mark.parametrize("user", [as_root, as_other_user])
def test_a_daemon_of_an_agent_is_refused_the_users_commands(
    relay: Relay, tmp_path: Path, user: Callable[[Relay], Relay]
) -> None:
    relay = user(relay)
    FakeAgent(relay, "Bob").wrap()
    with Ledger(Home.from_env(relay.environment).ensure().ledger) as ledger:
        (message,) = post(ledger, "default", "you", "Bob", "from the user")
    for name in ("relay.config.py", "new.toml"):
        (tmp_path / name).write_text("x = 1\n")
    chosen = list(REFUSED) if LONG or user is as_root else [*list(REFUSED)[::8], "attach --view Bob"]
    commands = {command.format(id=message.id): REFUSED[command] for command in chosen}
    (tmp_path / "commands").write_text(json.dumps(list(commands)))
    (tmp_path / "daemon.py").write_text(DAEMON)
    daemon = shlex.join(
        [sys.executable, f"{tmp_path}/daemon.py", f"{tmp_path}", f"{Path(__file__).parents[1]}"]
    )
    relay("wrap", "-d", "-n", "Mallory", "sh", "-c", f"{daemon}; cat")
    wait_until((tmp_path / "said").exists, 300)  # some sixty commands, one after the other
    results = json.loads((tmp_path / "said").read_text())
    for command, words in commands.items():
        code, text = results[command]
        text = " ".join(text.split())
        assert (command, code != 0, words in text) == (command, True, True), text
        assert re.search(r"This descends from \S+ \(pid \d+\), which belongs to Mallory", text), text
        assert "start that server outside first" in text, text
    refused = {entry["operation"].split()[0] for entry in events(relay) if entry["event"] == "refused"}
    assert refused == {command.split()[0] for command in commands} | {"view"}
    assert {row["name"] for row in ps(relay)} == {"Bob", "Mallory"}
