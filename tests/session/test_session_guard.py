"""The guard rail: what processes of a wrapped agent may ask for, and that the rest is refused and noted."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from relay.bus.ledger import Ledger
from relay.bus.posting import post
from relay.home import Home
from session.puppet import Puppet, events, project, ps
from support import Relay, wait_until


class Agent:
    """A session whose agent runs one command line of its own, and says how that ended."""

    def __init__(self, relay: Relay, folder: Path, line: str) -> None:
        self.folder = folder
        script = folder / "agent.sh"
        command = f"{shlex.quote(sys.executable)} -m relay"
        script.write_text(
            f'relay() {{ {command} "$@"; }}\n({line}) > {folder}/out 2> {folder}/err\n'
            f"echo $? > {folder}/code.part; mv {folder}/code.part {folder}/code\nexec cat\n"
        )
        relay("wrap", "-d", "-n", "Mallory", "sh", script)
        wait_until((folder / "code").exists)
        self.code = int((folder / "code").read_text())

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()


LISTENING = 'while [ ! -S "$RELAY_SOCKET" ]; do sleep 0.01; done; '


@pytest.mark.parametrize(
    "line", ["relay stop Bob", "relay stop --all", LISTENING + "relay stop Mallory", "relay stop --now Bob"]
)
def test_an_agent_may_not_stop_sessions(relay: Relay, tmp_path: Path, line: str) -> None:
    Puppet(relay, "Bob").wrap()
    agent = Agent(relay, tmp_path, line)
    assert agent.code == 1
    assert "an agent may not ask for 'stop'. The person can" in agent.out + agent.err
    assert {row["name"] for row in ps(relay)} == {"Bob", "Mallory"}
    assert [e for e in events(relay) if e["event"] == "refused" and e["operation"] == "stop"]


def test_hiding_the_environment_does_not_help(relay: Relay, tmp_path: Path) -> None:
    """Who asks is known by its ancestry."""
    Puppet(relay, "Bob").wrap()
    hidden = f"env -i PATH=$PATH HOME=$HOME RELAY_HOME=$RELAY_HOME {sys.executable} -m relay stop Bob"
    agent = Agent(relay, tmp_path, hidden)
    assert "an agent may not ask for 'stop'" in agent.out + agent.err
    assert {row["name"] for row in ps(relay)} == {"Bob", "Mallory"}


@pytest.mark.parametrize(
    "hidden", ["", "env -u RELAY_SESSION -u RELAY_SOCKET -u RELAY_NAME "], ids=["open", "hidden"]
)
def test_an_agent_may_not_attach(relay: Relay, tmp_path: Path, hidden: str) -> None:
    Puppet(relay, "Bob").wrap()
    code = (
        "import pexpect, sys; child = pexpect.spawn(sys.executable, ['-m', 'relay', 'attach', 'Bob']);"
        "child.expect(pexpect.EOF); print(child.before.decode()); child.close(); sys.exit(child.exitstatus)"
    )
    agent = Agent(relay, tmp_path, f"{hidden}{sys.executable} -c {shlex.quote(code)}")
    assert agent.code == 1
    words = (
        "an agent may not ask for 'attach'" if hidden else "this terminal is inside a relay session (Mallory)"
    )
    assert words in " ".join(agent.out.split())
    if hidden:
        assert [e["operation"] for e in events(relay) if e["event"] == "refused"] == ["attach"]


@pytest.mark.parametrize("hidden", [False, True], ids=["open", "hidden"])
def test_an_agent_may_not_trust_files(relay: Relay, tmp_path: Path, hidden: bool) -> None:
    (tmp_path / "relay.config.py").write_text("x = 1\n")
    hide = "unset RELAY_SOCKET RELAY_NAME RELAY_SESSION; " if hidden else ""
    agent = Agent(relay, tmp_path, f"{hide}relay trust {tmp_path}/relay.config.py")
    assert agent.code == 1
    assert "an agent may not trust files" in agent.err
    (entry,) = [e for e in events(relay) if e["event"] == "refused"]
    assert (entry["operation"], entry["name"].lower()) == ("trust", "mallory")
    assert not (relay.home / "state" / "trust.json").exists()


@pytest.mark.parametrize("command", ["retry", "drop"])
def test_an_agent_may_not_retry_or_drop_what_others_sent(relay: Relay, tmp_path: Path, command: str) -> None:
    with Ledger(Home.from_env(relay.environment).ensure().ledger) as ledger:
        ledger.register("default", "Bob")
        (message,) = post(ledger, "default", "you", "Bob", "from the person")
        agent = Agent(relay, tmp_path, f"relay {command} {message.id}")
        assert agent.code == 1
        assert "a message of somebody else cannot be" in agent.err
        assert [entry.message.state in {"queued", "sent"} for entry in ledger.messages()] == [True]
    (entry,) = [e for e in events(relay) if e["event"] == "refused"]
    assert (entry["operation"], entry["name"]) == (command, "Mallory")


def test_an_agent_may_list_send_read_and_remember(relay: Relay, tmp_path: Path) -> None:
    bob = Puppet(relay, "Bob").wrap()
    agent = Agent(
        relay,
        tmp_path,
        "relay ps --json && relay send Bob hello && relay memory save 'the mat hides a key' && "
        "relay memory list && relay messages",
    )
    assert agent.code == 0, agent.err
    assert "the mat hides a key" in agent.out
    bob.hears("hello")
    assert not [e for e in events(relay) if e["event"] == "refused"]


def test_an_agent_may_not_wrap_another_inside_its_session(relay: Relay, tmp_path: Path) -> None:
    """A relay inside a relay is refused, and says which."""
    agent = Agent(relay, tmp_path, "relay wrap -n Inner cat")
    assert agent.code == 2
    assert "this terminal is already inside a relay session (Mallory)" in agent.err


def test_the_persons_own_handlers_may_do_it_too(relay: Relay) -> None:
    """They are the person's code, though their processes descend from a session."""
    folder = project(
        relay,
        f"""
import subprocess
from relay import pattern

@pattern("stop")
def stop(target, message):
    return subprocess.run([{sys.executable!r}, "-m", "relay", "stop", target], stdout=-1, text=True).stdout
""",
    )
    bob, alice = Puppet(relay, "Bob").wrap(), Puppet(relay, "Alice").wrap(cwd=folder)
    alice.say("@stop:Bob please")
    alice.hears("Bob has ended.")
    assert bob.ended()


def test_the_person_outside_may_do_all_of_it(relay: Relay) -> None:
    bob = Puppet(relay, "Bob").wrap()
    assert os.environ.get("RELAY_SOCKET") is None
    relay("stop", "Bob")
    assert bob.ended()
    assert json.loads(relay("ps", "--json").stdout) == []
