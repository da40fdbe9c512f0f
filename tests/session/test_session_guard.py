"""What processes of a wrapped agent may request; anything else is refused and logged."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ledgers import post
from relay.control import lineage
from relay.control.lineage import Lineage
from relay.home import Home
from relay.messaging.ledger import Ledger
from session.fake_agent import FakeAgent, events, messages, project, ps
from support import Relay, wait_until


class Agent:
    """A session whose agent runs one command line; its exit code and output."""

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


AGENT, SHIM, SESSION = 10, 11, 12
"""Process ids."""

LISTENING = 'while [ ! -S "$RELAY_SOCKET" ]; do sleep 0.01; done; '


@pytest.mark.parametrize(
    "line", ["relay stop Bob", "relay stop --all", LISTENING + "relay stop Mallory", "relay stop --now Bob"]
)
def test_an_agent_may_not_stop_sessions(relay: Relay, tmp_path: Path, line: str) -> None:
    FakeAgent(relay, "Bob").wrap()
    agent = Agent(relay, tmp_path, line)
    assert agent.code == 1
    assert "an agent may not request 'stop'. The user can" in agent.out + agent.err
    assert {row["name"] for row in ps(relay)} == {"Bob", "Mallory"}
    assert [e for e in events(relay) if e["event"] == "refused" and e["operation"] == "stop"]


def test_an_agent_may_not_reload_a_session(relay: Relay, tmp_path: Path) -> None:
    """The shim itself checks the caller."""
    FakeAgent(relay, "Bob").wrap()
    agent = Agent(relay, tmp_path, "relay reload Bob")
    assert agent.code == 1
    assert "an agent may not request 'reload'. The user can" in agent.out + agent.err
    assert [e for e in events(relay) if e["event"] == "refused" and e["operation"] == "reload"]


def test_hiding_the_environment_does_not_help(relay: Relay, tmp_path: Path) -> None:
    """The caller is identified by its ancestry."""
    FakeAgent(relay, "Bob").wrap()
    hidden = f"env -i PATH=$PATH HOME=$HOME RELAY_HOME=$RELAY_HOME {sys.executable} -m relay stop Bob"
    agent = Agent(relay, tmp_path, hidden)
    assert "an agent may not request 'stop'" in agent.out + agent.err
    assert {row["name"] for row in ps(relay)} == {"Bob", "Mallory"}


@pytest.mark.parametrize(
    "hidden", ["", "env -u RELAY_SESSION -u RELAY_SOCKET -u RELAY_NAME "], ids=["open", "hidden"]
)
def test_an_agent_may_not_attach(relay: Relay, tmp_path: Path, hidden: str) -> None:
    FakeAgent(relay, "Bob").wrap()
    code = (
        "import pexpect, sys; child = pexpect.spawn(sys.executable, ['-m', 'relay', 'attach', 'Bob']);"
        "child.expect(pexpect.EOF); print(child.before.decode()); child.close(); sys.exit(child.exitstatus)"
    )
    agent = Agent(relay, tmp_path, f"{hidden}{sys.executable} -c {shlex.quote(code)}")
    assert agent.code == 1
    words = (
        "an agent may not request 'attach'" if hidden else "this terminal is inside a relay session (Mallory)"
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


BORROWED = """
import os, socket, sys
channel = socket.socket(socket.AF_UNIX)
if not (child := os.fork()):
    channel.connect(sys.argv[1])
    os._exit(0)
os.waitpid(child, 0)
channel.sendall(sys.argv[2].encode() + b"\\n")
print(channel.recv(9999).decode())
"""
"""Sends a request over a connection of a process that has ended."""


@pytest.mark.parametrize("socket", ["sock", "shim"])
def test_nobody_is_the_user_once_the_process_that_connected_has_ended(
    relay: Relay, tmp_path: Path, socket: str
) -> None:
    """An agent could otherwise answer its own permission dialogs."""
    FakeAgent(relay, "Bob").wrap()
    path = relay.home / "run" / "sessions" / "default" / f"bob.{socket}"
    line = shlex.join([sys.executable, "-c", BORROWED, str(path), '{"op": "stop"}'])
    agent = Agent(relay, tmp_path, line)
    assert "the requesting process has ended" in agent.out, agent.err
    assert {row["name"] for row in ps(relay)} == {"Bob", "Mallory"}
    assert [e["operation"] for e in events(relay) if e["event"] == "refused"] == ["stop"]


UNSHARE = {
    "another PID namespace": ["-p", "-f", "--mount-proc", "sh", "-c"],
    "ancestors cannot be read": ["-m", "sh", "-c", 'mount -t tmpfs none /proc && eval "$0"'],
}


@pytest.mark.skipif(sys.platform != "linux", reason="needs namespaces")
@pytest.mark.parametrize("why", UNSHARE)
def test_nobody_is_the_user_whose_ancestors_are_out_of_sight(relay: Relay, tmp_path: Path, why: str) -> None:
    """Neither a PID namespace nor a missing /proc makes an agent's process the user's."""
    unshare = ["unshare", "-U", "-r", *UNSHARE[why]]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("this user may not make namespaces")
    (tmp_path / "relay.config.py").write_text("x = 1\n")
    FakeAgent(relay, "Bob").wrap()
    commands = ("trust relay.config.py", "send Bob hello", "stop Bob")
    words = "unset RELAY_SOCKET RELAY_NAME RELAY_TEAM RELAY_SESSION RELAY_AGENT"
    script = f"{words}; for words in {shlex.join(commands)}; do {sys.executable} -m relay $words; done"
    agent = Agent(relay, tmp_path, f"cd {tmp_path}; {shlex.join([*unshare, script])}")
    trust, send, stop = agent.err.splitlines()
    assert why in trust and why in send
    assert "an agent may not request 'stop'" in stop
    assert not (relay.home / "state" / "trust.json").exists()
    assert {row["name"] for row in ps(relay)} == {"Bob", "Mallory"}
    refused = [e["operation"] for e in events(relay) if e["event"] == "refused"]
    assert refused == ["trust", "send", "stop"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs namespaces")
def test_the_user_is_known_where_proc_hides_other_users_processes(tmp_path: Path) -> None:
    """hidepid of proc(5), as on shared hosts, where nobody but root can read /proc/1."""
    code = "import os; from relay.control.lineage import *; print(complete(ancestors(os.getpid())))"
    mount = 'mount -t proc -o hidepid=2 none /proc && exec setpriv --reuid=65534 --clear-groups "$0" "$@"'
    environment = {**os.environ, "PYTHONPATH": str(Path(lineage.__file__).parents[2])}
    shown = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, sys.executable, "-c", code],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "Permission denied" in shown.stderr or "not permitted" in shown.stderr or "not found" in shown.stderr:
        pytest.skip("only root can mount /proc so, and its files must be readable for others")
    assert shown.stdout == "True\n", shown.stderr


@pytest.mark.parametrize("command", ["retry", "drop"])
def test_an_agent_may_not_retry_or_drop_others_messages(relay: Relay, tmp_path: Path, command: str) -> None:
    with Ledger(Home.from_env(relay.environment).ensure().ledger) as ledger:
        ledger.registry.register("default", "Bob")
        (message,) = post(ledger, "default", "you", "Bob", "from the user")
        agent = Agent(relay, tmp_path, f"relay {command} {message.id}")
        assert agent.code == 1
        assert "an agent cannot change another agent's message" in agent.err
        assert [entry.message.state in {"queued", "sent"} for entry in ledger.messages()] == [True]
    (entry,) = [e for e in events(relay) if e["event"] == "refused"]
    assert (entry["operation"], entry["name"]) == (command, "Mallory")


HIDE = {
    "open": "",
    "hidden": "unset RELAY_SOCKET RELAY_NAME RELAY_TEAM RELAY_SESSION; ",
    "forged": "export RELAY_SOCKET=${RELAY_SOCKET%/*}/bob.sock RELAY_NAME=Bob; unset RELAY_SESSION; ",
}


@pytest.mark.parametrize("hide", HIDE.values(), ids=HIDE)
def test_an_agent_acts_as_itself_whatever_its_environment_says(
    relay: Relay, tmp_path: Path, hide: str
) -> None:
    """It sends in its own name, and sees only its own messages, memory and events."""
    bob = FakeAgent(relay, "Bob").wrap()
    relay("send", "--wait", "20", "Bob", "for Bob alone")
    relay("memory", "save", "--name", "Bob", "Bob's memory")
    agent = Agent(
        relay,
        tmp_path,
        f"{LISTENING}{hide}relay send --thread t-7 Bob hello && relay memory save 'the mat hides a key' && "
        "relay memory list && relay messages --json && relay events --json",
    )
    assert agent.code == 0, agent.err
    assert bob.receives("hello").count("from Mallory]") == 1
    assert "for Bob alone" not in agent.out
    assert "Bob's memory" not in agent.out
    assert '"body": "hello"' in agent.out
    assert '"message_sent"' in agent.out, "it sees its own events"
    (sent,) = messages(relay, "--from", "Mallory")
    assert (sent["body"], sent["thread"]) == ("hello", "t-7")
    (kept,) = json.loads(relay("memory", "list", "--json", "--name", "Mallory").stdout)
    assert kept["text"] == "the mat hides a key"
    assert not [e for e in events(relay) if e["event"] == "refused"]


@pytest.mark.parametrize("hide", HIDE.values(), ids=HIDE)
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("send --from Bob Bob forged", "an agent can send only as itself"),
        ("send --from you Bob forged", "an agent can send only as itself"),
        ("send --team other Bob forged", "an agent can send only as itself"),
        ("memory list --name Bob", "an agent can use only its own memories"),
        ("messages --team other", "an agent sees only its own messages"),
        ("events Bob", "an agent sees only its own events"),
    ],
)
def test_an_agent_may_not_act_as_another(
    relay: Relay, tmp_path: Path, hide: str, command: str, words: str
) -> None:
    agent = Agent(relay, tmp_path, f"{hide}relay {command}")
    assert agent.code == 1
    assert "this runs inside the agent mallory" in agent.err.lower()
    assert words in agent.err
    (entry,) = [e for e in events(relay) if e["event"] == "refused"]
    assert (entry["operation"], entry["name"].lower()) == (command.split()[0], "mallory")
    assert messages(relay) == []


def test_a_stale_lock_file_identifies_no_caller(relay: Relay) -> None:
    """The agent's process id may be reused, for example by the user's shell."""
    claim = relay.home / "run" / "sessions" / "default" / "gone.lock"
    claim.parent.mkdir(parents=True)
    claim.write_text(str(os.getpid()))
    bob = FakeAgent(relay, "Bob").wrap()
    relay("send", "Bob", "from the user")
    bob.receives("from the user] from the user")


def test_an_agent_may_list_send_read_and_save(relay: Relay, tmp_path: Path) -> None:
    bob = FakeAgent(relay, "Bob").wrap()
    agent = Agent(
        relay,
        tmp_path,
        "relay ps --json && relay send Bob hello && relay memory save 'the mat hides a key' && "
        "relay memory list && relay messages && relay hooks list Bob",
    )
    assert agent.code == 0, agent.err
    assert "the mat hides a key" in agent.out
    bob.receives("hello")
    assert not [e for e in events(relay) if e["event"] == "refused"]


def test_an_agent_may_not_wrap_another_inside_its_session(relay: Relay, tmp_path: Path) -> None:
    """The error names the outer session."""
    agent = Agent(relay, tmp_path, "relay wrap -n Inner cat")
    assert agent.code == 2
    assert "this terminal is already inside a relay session (Mallory)" in agent.err


@pytest.mark.parametrize(
    ("pids", "process"),
    [
        ([20, AGENT, SHIM, 1], AGENT),
        ([21, 20, SHIM, 1], 20),
        ([20, SHIM, 1], 20),
        ([21, 20, SESSION, SHIM, 1], 0),
        ([SHIM, 1], 0),
        ([20, 1], 0),
    ],
    ids=["a child", "a daemon's child", "a daemon", "a handler's", "the shim", "another's"],
)
def test_a_process_is_attributed_to_its_nearest_ancestor(pids: list[int], process: int) -> None:
    assert Lineage(AGENT, SHIM, SESSION).through(pids) == process


def test_the_users_handlers_may_stop_sessions(relay: Relay) -> None:
    """Handlers are the user's code, although their processes descend from a session."""
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
    bob, alice = FakeAgent(relay, "Bob").wrap(), FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.say("@stop:Bob please")
    alice.receives("Bob has ended.")
    assert bob.ended()


def test_a_process_left_by_a_handler_may_stop_sessions(relay: Relay) -> None:
    """The session adopts its helpers' orphans; the shim would count them among the agent's processes."""
    folder = project(
        relay,
        f"""
import subprocess
from relay import pattern

@pattern("stop")
def stop(target, message):
    subprocess.run("setsid sh -c 'sleep 0.2; {sys.executable} -m relay stop " + target + "' &", shell=True)
""",
    )
    bob, alice = FakeAgent(relay, "Bob").wrap(), FakeAgent(relay, "Alice").wrap(cwd=folder)
    alice.say("@stop:Bob please")
    wait_until(bob.ended, message=alice.log)


def test_the_user_may_stop_sessions(relay: Relay) -> None:
    bob = FakeAgent(relay, "Bob").wrap()
    assert os.environ.get("RELAY_SOCKET") is None
    relay("stop", "Bob")
    assert bob.ended()
    assert json.loads(relay("ps", "--json").stdout) == []
