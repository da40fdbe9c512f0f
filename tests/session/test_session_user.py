"""The user at the terminal: their input is left alone, and notices are shown."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relay.message import ID_SHOWN
from session.fake_agent import FakeAgent, messages, project, ps, settings
from session.test_session_replaced import bodies, wait_for_body
from support import Relay, processes_of, session_patch, wait_until
from terminal.emulator import Emulator

pytestmark = pytest.mark.own_team


class Terminals:
    """Terminals in which users wrap fake agents."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.opened: list[Emulator] = []

    def __call__(
        self, name: str, *arguments: str, cwd: Path | None = None, options: tuple[str, ...] = ()
    ) -> tuple[FakeAgent, Emulator]:
        """Return the fake agent, with a running session, and the user's end of the terminal."""
        fake = FakeAgent(self.relay, name)
        user = self.spawn(fake, *arguments, options=options, cwd=cwd)
        wait_until(lambda: (fake.folder / "received").exists() and fake.events("session_start"))
        return fake, user

    def spawn(
        self,
        fake: FakeAgent,
        *arguments: str,
        options: tuple[str, ...] = (),
        cwd: Path | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> Emulator:
        wrap = ["-m", "relay", "wrap", "-n", fake.name, *options]
        return self.run([*wrap, *map(str, fake.command(*arguments))], cwd, prepare)

    def run(
        self, arguments: list[str], cwd: Path | None = None, prepare: Callable[[], None] | None = None
    ) -> Emulator:
        """Run Python with `arguments`, in a new terminal."""
        argv = [sys.executable, *arguments]
        user = Emulator(argv, self.relay.environment, cwd=cwd, columns=200, rows=40, prepare=prepare)
        self.opened.append(user)
        return user


@pytest.fixture
def attached(relay: Relay) -> Iterator[Terminals]:
    """Yield a factory: `attached("Alice")` wraps a fake agent in a new terminal."""
    terminals = Terminals(relay)
    yield terminals
    for user in terminals.opened:
        user.close()


def test_a_message_waits_for_a_half_typed_line(relay: Relay, attached: Terminals) -> None:
    """A message waits until the line is finished, and some seconds longer."""
    alice, user = attached("Alice")
    user.type(b"hello wor")
    user.see(b"hello wor")
    relay("send", "Alice", "from a peer")
    wait_until(lambda: [m["state"] for m in messages(relay)] == ["stored"])

    def obstacle() -> str:
        return str(json.loads(relay("explain", "Alice", "--json").stdout)["obstacle"])

    wait_until(lambda: obstacle() == "you have a half-typed line in it", message=obstacle)
    user.type(b"ld\r")
    alice.receives("from a peer")
    first, second = alice.received.splitlines()
    assert first == "hello world"
    (message,) = messages(relay)
    mark = message["id"][:ID_SHOWN]
    assert second == f"[relay {mark} from the user] from a peer [/relay {mark}]"


def test_user_input_is_never_a_directive(relay: Relay, attached: Terminals) -> None:
    alice, user = attached("Alice")
    user.type(b"@relay:you typed by the user\r")
    alice.receives("typed by the user")
    alice.say("@relay:you said by the agent")
    wait_for_body(relay, "said by the agent")
    assert bodies(relay) == ["said by the agent"]


def test_user_input_repeated_by_the_agent_is_a_directive(relay: Relay, attached: Terminals) -> None:
    _, user = attached("Alice", "--reply", "typed", "@relay:you typed by the user\n")
    user.type(b"@relay:you typed by the user\r")
    wait_for_body(relay, "typed by the user")
    assert bodies(relay) == ["typed by the user"]


def test_a_notice_is_shown_at_once_to_a_line_program(relay: Relay, attached: Terminals) -> None:
    folder = project(relay, "x = 1\n", trust=False)
    _, user = attached("Alice", cwd=folder)
    user.wait(
        lambda: re.search(
            rb"relay: [^\r\n]*relay\.config\.py is not trusted, so it does not run\.[^\r\n]*\r\n", user.output
        )
    )


def test_a_notice_waits_for_the_end_of_a_full_screen_program(relay: Relay, attached: Terminals) -> None:
    folder = project(relay, "import os\nif os.path.exists('broken'):\n    raise OSError('no route')\n")
    (folder / "broken").touch()
    drawn = relay.home / "fakes" / f"{relay.team}" / "Alice" / "received"  # exists once the agent has drawn
    relay.environment |= session_patch(
        f"import os, time\nwhile not os.path.exists({str(drawn)!r}):\n    time.sleep(0.01)\n"
    )
    alice, user = attached("Alice", "--ready", "\x1b[?1049h\x1b[Hfull screen", cwd=folder)
    alice.notice("no route")
    alice.exit(3)
    assert user.end() == 3
    screen, after = user.output.split(b"\x1b[?1049l")
    assert b"no route" not in screen
    assert b"no route" in after


def test_a_handlers_error_is_shown_once(relay: Relay, attached: Terminals) -> None:
    folder = project(
        relay,
        "from relay import pattern\n\n@pattern('deploy')\ndef fail(target):\n    raise OSError('no route')\n",
    )
    alice, user = attached("Alice", cwd=folder)
    alice.say("@deploy:a b\n@deploy:a b\n@memory:save done")
    alice.receives("Saved to memory")
    alice.exit(0)
    user.end()
    shown = re.findall(rb"relay: relay\.config\.py:5: the handler [^\r\n]*", user.output)
    assert shown == [b"relay: relay.config.py:5: the handler fail (@deploy) raised OSError: no route"]


@pytest.mark.own_home
def test_a_full_disk_is_reported_and_the_agent_keeps_running(relay: Relay, attached: Terminals) -> None:
    """No byte can be written to any file. Each store reports it, and the terminal is unaffected."""
    fake = FakeAgent(relay, "Alice")
    (fake.folder / "received").symlink_to("/dev/null")
    user = attached.spawn(
        fake, prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    )
    user.see(b"cannot write the journal")
    for without in (b"messages", b"memory"):
        user.see(b"The agent keeps running without %s." % without)
    wait_until((fake.folder / "strings").exists)
    fake.say("still running")
    user.see(b"still running")
    fake.exit(5)
    assert user.end() == 5


def test_nothing_is_started_if_no_memory_can_be_reserved(relay: Relay) -> None:
    """A hard file size limit applies to anonymous memory files as well."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *relay.command, "wrap", "sh", "-c", "echo up; exec sleep 1000"],
        env=relay.environment,
        cwd=relay.home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("relay: cannot reserve 8 MB of memory: ")
    assert "ulimit -f" in done.stderr
    wait_until(lambda: not any("sleep 1000" in line for line in processes_of(relay.home).values()))


def test_an_agent_is_ended_with_the_reason_if_memory_runs_out_at_its_start(
    relay: Relay, attached: Terminals
) -> None:
    """The rest of the ring is reserved after the agent's first output."""
    main = (
        "import errno, os, sys\n"
        "allocate = os.posix_fallocate\n"
        "def scarce(fd, offset, size):\n"
        "    if size > 1 << 20:\n"
        "        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
        "    allocate(fd, offset, size)\n"
        "os.posix_fallocate = scarce\n"
        "from relay.__main__ import main\n"
        "sys.exit(main())\n"
    )
    user = attached.run(["-c", main, "wrap", "sh", "-c", "echo up; exec sleep 1000"])
    user.see(b"up\r\n")
    user.see(b"relay: cannot reserve 8 MB of memory: No space left on device. Free some space")
    assert user.end() == 128 + 9
    assert not any("sleep 1000" in line for line in processes_of(relay.home).values())


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
libc = __import__("ctypes").CDLL(None)
libc.prctl(24, 24)  # PR_CAPBSET_DROP, CAP_SYS_RESOURCE: root may not raise it, either
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_an_unreachable_broker_is_reported(relay: Relay, attached: Terminals) -> None:
    settings(relay, "stop_seconds = 0.1\n")
    alice, user = attached("Alice", options=("--broker", "mqtt://127.0.0.1:1"))
    user.see(b"\r\n", user.see(b"relay: no connection to the broker at mqtt://127.0.0.1:1 "))
    alice.say("still running")
    user.see(b"still running")


def test_a_users_program_can_wrap_an_agent(relay: Relay, attached: Terminals, tmp_path: Path) -> None:
    """R59: Relay(name=...), .pattern(), .on(), .wrap(); the exit code is the agent's."""
    alice = FakeAgent(relay, "Alice")
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import sys
from relay import Relay

relay = Relay(name="Alice", task="tidy up", memory={{"promptOnEnd": False}})

@relay.pattern("deploy")
async def deploy(target, message, ctx):
    return {{"inject": f"Deployed {{message}} to {{target}}: {{ctx.task}}"}}

def greet(event, ctx):
    ctx.inject("Hello from the program.")

relay.on("sessionStart", greet)
sys.exit(relay.wrap({[str(part) for part in alice.command()]!r}))
"""
    )
    user = attached.run([str(program)])
    alice.receives("Hello from the program.")
    alice.say("@deploy:staging v1")
    alice.receives("Deployed v1 to staging: tidy up")
    alice.exit(4)
    assert user.end() == 4


PICKER = """
name = "known"
[[states]]
name = "spinner"
state = "working"
region = "bottom 1"
all = ["^busy"]
[[states]]
name = "picker"
state = "prompting"
kind = "other"
region = "bottom 1"
all = ["^Resume which"]
"""


def test_an_answer_to_a_dialog_starts_no_turn(relay: Relay, attached: Terminals) -> None:
    """Enter that picks a conversation to resume is not a prompt, so the old conversation is not read."""
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir(parents=True)
    (patterns / "known.toml").write_text(PICKER)
    settings(relay, 'teach = "never"\n')
    alice, user = attached("Alice", options=("--agent", "known"))
    alice.say("Resume which one?")
    wait_until(lambda: ps(relay)[0]["state"] == "prompting")
    before = len((alice.folder / "received").read_bytes())
    user.type(b"\r")
    wait_until(lambda: len((alice.folder / "received").read_bytes()) > before)
    alice.say("@memory:save from long ago")
    alice.say("busy")
    wait_until(lambda: "spinner" in relay("explain", "Alice").stdout)
    alice.say("@memory:save from now")
    wait_until(lambda: alice.events("directive"))
    assert [e["body"] for e in alice.events("directive")] == ["from now"]
