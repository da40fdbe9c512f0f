"""What processes of a wrapped agent may request; anything else is refused and logged."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgers import post
from relay.control import lineage
from relay.control.lineage import Lineage
from relay.control.sessions import socket_of
from relay.home import Home
from relay.messaging.ledger import Ledger
from session.fake_agent import Entry, FakeAgent, events, messages, project, ps
from support import Relay, wait_until

SHELL = Path(__file__).parent.parent / "fakes" / "agent_shell.py"


class Mallory(FakeAgent):
    """An agent that runs shell lines for a test."""

    def command(self, *arguments: str) -> list[str | Path]:
        return [sys.executable, "-S", SHELL, self.folder, *arguments]

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        self._pull({"run": line})
        done = self.folder / "done"
        wait_until(done.exists, message=lambda: f"{line}\n{self.log()}")
        code, out, err = json.loads(done.read_text())
        done.unlink()
        return subprocess.CompletedProcess(line, code, out, err)

    def refused(self) -> list[Entry]:
        """Return the journal's entries of what was refused since the last call."""
        found = [e for e in events(self.relay) if e["event"] == "refused"]
        before, self._refused = self._refused, len(found)
        return found[before:]

    _refused = 0


class Agent:
    """A session whose agent runs one command line, and how it went: for a single test of a module."""

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


@pytest.fixture(scope="module")
def bob(shared: Relay) -> FakeAgent:
    return FakeAgent(shared, "Bob").wrap()


@pytest.fixture(scope="module")
def only_mallory(bob: FakeAgent) -> Mallory:
    mallory = Mallory(bob.relay, "Mallory")
    mallory.wrap()
    return mallory


@pytest.fixture
def mallory(only_mallory: Mallory) -> Iterator[Mallory]:
    """Yield an agent next to Bob; whatever it does, both run afterwards."""
    only_mallory.refused()
    yield only_mallory
    assert {row["name"] for row in ps(only_mallory.relay)} == {"Bob", "Mallory"}


AGENT, SHIM, SESSION = 10, 11, 12
"""Process ids."""


@pytest.mark.parametrize("line", ["stop Bob", "stop --all", "stop Mallory", "stop --now Bob"])
def test_an_agent_may_not_stop_sessions(mallory: Mallory, line: str) -> None:
    done = mallory.run(f"relay {line}")
    assert done.returncode == 1
    assert "an agent may not request 'stop'. The user can" in done.stdout + done.stderr
    assert {entry["operation"] for entry in mallory.refused()} == {"stop"}


def test_an_agent_may_not_reload_a_session(mallory: Mallory) -> None:
    """The shim itself checks the caller."""
    done = mallory.run("relay reload Bob")
    assert done.returncode == 1
    assert "an agent may not request 'reload'. The user can" in done.stdout + done.stderr
    assert {entry["operation"] for entry in mallory.refused()} == {"reload"}


def test_hiding_the_environment_does_not_help(mallory: Mallory) -> None:
    """The caller is identified by its ancestry."""
    done = mallory.run(
        f"env -i PATH=$PATH HOME=$HOME RELAY_HOME=$RELAY_HOME {sys.executable} -m relay stop Bob"
    )
    assert "an agent may not request 'stop'" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "hidden", ["", "env -u RELAY_SESSION -u RELAY_SOCKET -u RELAY_NAME "], ids=["open", "hidden"]
)
def test_an_agent_may_not_attach(mallory: Mallory, hidden: str) -> None:
    code = (
        "import pexpect, sys; child = pexpect.spawn(sys.executable, ['-m', 'relay', 'attach', 'Bob']);"
        "child.expect(pexpect.EOF); print(child.before.decode()); child.close(); sys.exit(child.exitstatus)"
    )
    done = mallory.run(f"{hidden}{sys.executable} -c {shlex.quote(code)}")
    assert done.returncode == 1
    words = (
        "an agent may not request 'attach'" if hidden else "this terminal is inside a relay session (Mallory)"
    )
    assert words in " ".join(done.stdout.split())
    assert [entry["operation"] for entry in mallory.refused()] == (["attach"] if hidden else [])


@pytest.mark.parametrize("hidden", [False, True], ids=["open", "hidden"])
def test_an_agent_may_not_trust_files(mallory: Mallory, tmp_path: Path, hidden: bool) -> None:
    (tmp_path / "relay.config.py").write_text("x = 1\n")
    hide = "unset RELAY_SOCKET RELAY_NAME RELAY_SESSION; " if hidden else ""
    done = mallory.run(f"{hide}relay trust {tmp_path}/relay.config.py")
    assert done.returncode == 1
    assert "an agent may not trust files" in done.stderr
    (entry,) = mallory.refused()
    assert (entry["operation"], entry["name"].lower()) == ("trust", "mallory")
    assert not (mallory.relay.home / "state" / "trust.json").exists()


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
def test_nobody_is_the_user_once_the_process_that_connected_has_ended(mallory: Mallory, socket: str) -> None:
    """An agent could otherwise answer its own permission dialogs."""
    path = mallory.relay.home / "run" / "sessions" / "default" / f"bob.{socket}"
    done = mallory.run(shlex.join([sys.executable, "-c", BORROWED, str(path), '{"op": "stop"}']))
    assert "the requesting process has ended" in done.stdout, done.stderr
    assert [entry["operation"] for entry in mallory.refused()] == ["stop"]


UNSHARE = {
    "another PID namespace": ["-p", "-f", "--mount-proc", "sh", "-c"],
    "ancestors cannot be read": ["-m", "sh", "-c", 'mount -t tmpfs none /proc && eval "$0"'],
}


@pytest.mark.skipif(sys.platform != "linux", reason="needs namespaces")
@pytest.mark.parametrize("why", UNSHARE)
def test_nobody_is_the_user_whose_ancestors_are_out_of_sight(
    mallory: Mallory, tmp_path: Path, why: str
) -> None:
    """Neither a PID namespace nor a missing /proc makes an agent's process the user's."""
    unshare = ["unshare", "-U", "-r", *UNSHARE[why]]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("this user may not make namespaces")
    (tmp_path / "relay.config.py").write_text("x = 1\n")
    commands = ("trust relay.config.py", "send Bob hello", "stop Bob")
    words = "unset RELAY_SOCKET RELAY_NAME RELAY_TEAM RELAY_SESSION RELAY_AGENT"
    script = f"{words}; for words in {shlex.join(commands)}; do {sys.executable} -m relay $words; done"
    done = mallory.run(f"cd {tmp_path}; {shlex.join([*unshare, script])}")
    trust, send, stop = done.stderr.splitlines()
    assert why in trust and why in send
    assert "an agent may not request 'stop'" in stop
    assert not (mallory.relay.home / "state" / "trust.json").exists()
    assert [entry["operation"] for entry in mallory.refused()] == ["trust", "send", "stop"]


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
def test_an_agent_may_not_retry_or_drop_others_messages(mallory: Mallory, command: str) -> None:
    with Ledger(Home.from_env(mallory.relay.environment).ledger) as ledger:
        ledger.registry.register("default", "Eve")
        (message,) = post(ledger, "default", "you", "Eve", "from the user")
        done = mallory.run(f"relay {command} {message.id}")
        assert done.returncode == 1
        assert "an agent cannot change another agent's message" in done.stderr
        (kept,) = [entry.message for entry in ledger.messages() if entry.message.id == message.id]
        assert kept.state in {"queued", "sent"}
    (entry,) = mallory.refused()
    assert (entry["operation"], entry["name"]) == (command, "Mallory")


HIDE = {
    "open": "",
    "hidden": "unset RELAY_SOCKET RELAY_NAME RELAY_TEAM RELAY_SESSION; ",
    "forged": "export RELAY_SOCKET=${RELAY_SOCKET%/*}/bob.sock RELAY_NAME=Bob; unset RELAY_SESSION; ",
}


@pytest.mark.parametrize("hide", HIDE)
def test_an_agent_acts_as_itself_whatever_its_environment_says(
    mallory: Mallory, bob: FakeAgent, hide: str
) -> None:
    """It sends in its own name, and sees only its own messages, memory and events."""
    relay = mallory.relay
    relay("send", "--wait", "20", "Bob", "for Bob alone")
    relay("memory", "save", "--name", "Bob", "Bob's memory")
    done = mallory.run(
        f"{HIDE[hide]}relay send --thread t-7 Bob hello {hide} && relay memory save 'the {hide} mat' && "
        "relay memory list && relay messages --json && relay events --json"
    )
    assert done.returncode == 0, done.stderr
    assert bob.receives(f"hello {hide}").count(f"from Mallory] hello {hide} [") == 1
    assert "for Bob alone" not in done.stdout
    assert "Bob's memory" not in done.stdout
    assert f'"body": "hello {hide}"' in done.stdout
    assert '"message_sent"' in done.stdout, "it sees its own events"
    (sent,) = [m for m in messages(relay, "--from", "Mallory") if m["body"] == f"hello {hide}"]
    assert sent["thread"] == "t-7"
    kept = json.loads(relay("memory", "list", "--json", "--name", "Mallory").stdout)
    assert f"the {hide} mat" in [each["text"] for each in kept]
    assert not mallory.refused()


@pytest.mark.parametrize(
    ("hide", "command", "words"),
    [
        ("open", "send --from Bob Bob forged", "an agent can send only as itself"),
        ("hidden", "send --from Bob Bob forged", "an agent can send only as itself"),
        ("forged", "send --from Bob Bob forged", "an agent can send only as itself"),
        ("forged", "send --from you Bob forged", "an agent can send only as itself"),
        ("hidden", "send --team other Bob forged", "an agent can send only as itself"),
        ("forged", "memory list --name Bob", "an agent can use only its own memories"),
        ("hidden", "messages --team other", "an agent sees only its own messages"),
        ("forged", "events Bob", "an agent sees only its own events"),
    ],
)
def test_an_agent_may_not_act_as_another(mallory: Mallory, hide: str, command: str, words: str) -> None:
    done = mallory.run(f"{HIDE[hide]}relay {command}")
    assert done.returncode == 1
    assert "this runs inside the agent mallory" in done.stderr.lower()
    assert words in done.stderr
    (entry,) = mallory.refused()
    assert (entry["operation"], entry["name"].lower()) == (command.split()[0], "mallory")
    assert "forged" not in [message["body"] for message in messages(mallory.relay)]


@pytest.mark.parametrize(
    "request_", [{"op": "send", "id": "1f", "to": "you", "body": "forged"}, {"op": "join", "channel": "ops"}]
)
def test_an_agent_may_not_use_another_agents_session(
    mallory: Mallory, bob: FakeAgent, tmp_path: Path, request_: dict[str, str]
) -> None:
    socket = socket_of(Home.from_env({"RELAY_HOME": str(bob.relay.home)}), "default", "Bob")
    script = tmp_path / "forge.py"
    script.write_text(
        f"from relay.control.sessions import call\nprint(call({str(socket)!r}, {request_!r}))\n"
    )
    done = mallory.run(f"{sys.executable} {script}")
    assert done.returncode != 0 and "NotAllowed" in done.stderr, done
    assert "forged" not in [message["body"] for message in messages(mallory.relay)]
    assert "ops" not in bob.relay("channels").stdout


def test_a_stale_lock_file_identifies_no_caller(bob: FakeAgent) -> None:
    """The agent's process id may be reused, for example by the user's shell."""
    claim = bob.relay.home / "run" / "sessions" / "default" / "gone.lock"
    claim.write_text(str(os.getpid()))
    bob.relay("send", "Bob", "said by the user")
    bob.receives("from the user] said by the user")
    claim.unlink(missing_ok=True)  # whoever finds it stale removes it


def test_an_agent_may_list_send_read_and_save(mallory: Mallory, bob: FakeAgent) -> None:
    done = mallory.run(
        "relay ps --json && relay send Bob good morning && relay memory save 'the mat hides a key' && "
        "relay memory list && relay messages && relay hooks list Bob"
    )
    assert done.returncode == 0, done.stderr
    assert "the mat hides a key" in done.stdout
    bob.receives("good morning")
    assert not mallory.refused()


def test_an_agent_may_not_wrap_another_inside_its_session(mallory: Mallory) -> None:
    """The error names the outer session."""
    done = mallory.run("relay wrap -n Inner cat")
    assert done.returncode == 2
    assert "this terminal is already inside a relay session (Mallory)" in done.stderr


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


STOPS = f"""
import subprocess
from relay import pattern

@pattern("stop")
def stop(target, message):
    return subprocess.run([{sys.executable!r}, "-m", "relay", "stop", target], stdout=-1, text=True).stdout

@pattern("later")
def later(target, message):
    subprocess.run("setsid sh -c 'sleep 0.2; {sys.executable} -m relay stop " + target + "' &", shell=True)
"""


def test_the_user_and_the_users_handlers_may_stop_sessions(relay: Relay) -> None:
    """Handlers are the user's code, although their processes descend from a session, which adopts what they
    leave behind; the shim would count that among the agent's processes."""
    alice = FakeAgent(relay, "Alice").wrap(cwd=project(relay, STOPS))
    bob, ben, bill = (FakeAgent(relay, name).wrap() for name in ("Bob", "Ben", "Bill"))
    alice.say("@stop:Bob please")
    alice.receives("Bob has ended.")
    assert bob.ended()
    alice.say("@later:Ben please")
    wait_until(ben.ended, message=alice.log)
    assert os.environ.get("RELAY_SOCKET") is None
    relay("stop", "Bill")
    assert bill.ended()
    assert [row["name"] for row in ps(relay)] == ["Alice"]
