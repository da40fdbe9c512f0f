"""No directive is lost between the terminal and the ledger, and any that is not acted on is reported."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from ledgers import locked
from relay.home import Home
from relay.recording import store
from relay.recording.asciicast import Cast, gap_size
from session.fake_agent import FakeAgent, messages
from session.test_session_replaced import entry, replaced
from support import Relay, clean_environment, session_patch, wait_until

pytestmark = pytest.mark.own_team

SHORT_LOCK_WAIT = (
    "from relay.messaging.ledger_database import LedgerDatabase\n"
    "LedgerDatabase.busy_seconds = 0.05\n"
    "from relay.messaging.client import MessagingClient\n"
    "from relay.errors import LedgerError\n"
    "send = MessagingClient.send\n"
    "async def noted(self, outgoing):\n"
    "    try:\n"
    "        return await send(self, outgoing)\n"
    "    except LedgerError:\n"
    "        open({refused!r}, 'w').close()\n"
    "        raise\n"
    "MessagingClient.send = noted\n"
)


def bodies(relay: Relay) -> list[str]:
    return [message["body"] for message in messages(relay)]


def test_a_directive_waits_while_the_ledger_is_locked(relay: Relay) -> None:
    """S15: with many writers, the ledger may stay locked for longer than one attempt waits."""
    refused = relay.home / "refused"
    alice = FakeAgent(relay, "Alice").wrap(env=session_patch(SHORT_LOCK_WAIT.format(refused=str(refused))))
    with locked(Home.from_env(clean_environment(relay.home)).ledger):
        alice.say("@relay:you one\n@relay:you two")
        wait_until(refused.exists)
    wait_until(lambda: bodies(relay) == ["one", "two"], message=alice.log)
    assert not alice.events("directive_failed")


def test_directives_cut_off_by_the_agents_end_are_reported(relay: Relay) -> None:
    """This includes a directive whose handler had started."""
    patch = session_patch(
        "import asyncio, functools\n"
        "from relay.builtin import relay as module\n"
        "from relay.session import session\n"
        "session.FAREWELL = session.AFTERTHOUGHT = 0.2\n"
        "async def deliver(target, message, ctx):\n"
        "    await asyncio.Event().wait()\n"
        "module.deliver = functools.wraps(module.deliver)(deliver)\n"
    )
    alice = FakeAgent(relay, "Alice").wrap(env=patch)
    alice.say("@relay:Bob one")
    wait_until(lambda: alice.events("directive"))
    alice.exit()
    alice.notice("1 directive in Alice's last words had no effect")


WRITER = """
import os, sys, time
os.write(1, b"@relay:you the first half")
while not os.path.exists("go"):
    time.sleep(0.001)
os.write(1, b" and the second\\r\\n")
sys.stdin.read()
"""


def test_a_line_finished_during_the_check_for_input_is_not_split(relay: Relay) -> None:
    """After a check found no pending output, the program wrote the rest and then blocked in a read."""
    patch = session_patch(
        "import os, time\n"
        "from relay.terminal.shim_link import ShimLink\n"
        "from relay.shim.process_wait import Wait\n"
        "from relay.state.agent_terminal import AgentTerminal\n"
        "look, waits, asked = ShimLink.look, AgentTerminal.waits_for_input, []\n"
        "def asks(self):\n"
        "    asked.append(1)\n"
        "    try:\n"
        "        return waits(self)\n"
        "    finally:\n"
        "        asked.clear()\n"
        "AgentTerminal.waits_for_input = asks\n"
        "def late(self, group):\n"
        "    if asked and not os.path.exists('go') and '@relay' in open('printed').read():\n"
        "        open('go', 'w').close()\n"
        "        while look(self, group).wait is not Wait.READ:\n"
        "            time.sleep(0.001)\n"
        "    return look(self, group)\n"
        "ShimLink.look = late\n"
        "from relay.session.output_reader import OutputReader\n"
        "output = OutputReader._output\n"
        "def noted(self, record):\n"
        "    with open('printed', 'ab') as log:\n"
        "        log.write(record.data)\n"
        "    return output(self, record)\n"
        "OutputReader._output = noted\n"
    )
    folder = relay.home / "writer"
    folder.mkdir()
    (folder / "printed").touch()
    Path(folder / "writer.py").write_text(WRITER)
    relay("wrap", "-d", "-n", "Alice", sys.executable, "writer.py", cwd=folder, env=patch)
    wait_until(lambda: bodies(relay) == ["the first half and the second"], message=lambda: str(bodies(relay)))


def steps(relay: Relay, name: str = "Alice") -> dict[str, int]:
    found: dict[str, int] = json.loads(relay("explain", name, "--json").stdout)["directives"]
    return found


def test_explain_counts_directives_at_each_step(relay: Relay) -> None:
    """Sessions that were replaced count as well."""
    alice = FakeAgent(relay, "Alice").wrap()
    alice.say("@relay:you one\n@relay:Nobody two\n@memory:save three")
    expected = {
        "heard": 3,
        "begun": 3,
        "failed": 1,
        "unknown": 0,
        "passed_over": 0,
        "hidden": 0,
        "diff": 0,
        "joined": 0,
        "not_heeded": 0,
        "missed": 0,
        "committed": 1,
    }
    wait_until(lambda: steps(relay).items() >= expected.items(), message=lambda: str(steps(relay)))
    assert bodies(relay) == ["one"]
    assert steps(relay)["read"] >= 50 and steps(relay)["lines"] >= 3
    before = entry(relay)
    os.kill(before["session_pid"], signal.SIGKILL)
    replaced(relay, before)
    alice.say("@relay:you four\n> @relay:you quoted")
    wait_until(lambda: bodies(relay) == ["one", "four"])
    expected |= {"heard": 4, "begun": 4, "passed_over": 1, "committed": 2}
    wait_until(lambda: steps(relay).items() >= expected.items(), message=lambda: str(steps(relay)))
    shown = relay("explain", "Alice").stdout
    assert "directives: 4 read, 4 passed to handlers, 1 failed; 2 in the ledger." in shown
    assert "1 directive behind a sign, as in a quotation, ignored: `relay events Alice`." in shown


def test_a_quoted_directive_is_reported(relay: Relay) -> None:
    """S9: a quotation is not a directive, but an unknown prompt may only make a line look quoted."""
    alice = FakeAgent(relay, "Alice").wrap()
    alice.say("> @relay:Bob one\n> @relay:Bob two\n+ @unknown:Bob three\n`@relay:Bob` is how to write\n")
    alice.notice("a directive behind '>' was ignored as a quotation")
    wait_until(lambda: steps(relay)["passed_over"] == 2)
    assert [e["text"] for e in alice.events("directive_passed_over")] == [
        "> @relay:Bob one",
        "> @relay:Bob two",
    ]
    assert len([e for e in alice.events("notice") if "quotation" in e["text"]]) == 1


def gaps(relay: Relay) -> list[str]:
    """Return the gaps in Alice's recording."""
    recorded = store.recordings(relay.home / "state" / "recordings", "Alice", f"{relay.team}")
    parts = recorded[-1].parts if recorded else ()
    return [event.data for part in parts for event in Cast(part.path) if gap_size(event.data)]


FLOOD = """
import sys
open("go").read()
print("a line of a log without any useful content\\n" * 210000, flush=True)
open("printed", "w").close()
sys.stdin.read()
"""


def test_output_that_outran_the_reader_is_reported(relay: Relay) -> None:
    """The notice gives the size, once; the recording has a gap there."""
    (folder := relay.home / "flood").mkdir()
    (folder / "flood.py").write_text(FLOOD)
    os.mkfifo(folder / "go")
    relay("wrap", "-d", "-n", "Alice", sys.executable, "flood.py", cwd=folder)
    alice, before = FakeAgent(relay, "Alice"), entry(relay)
    os.kill(before["session_pid"], signal.SIGSTOP)
    (folder / "go").write_text("")
    wait_until((folder / "printed").exists, timeout=60)
    os.kill(before["session_pid"], signal.SIGCONT)
    assert "ask Alice to repeat" in alice.notice("missed some of Alice's output")
    first, *_ = wait_until(lambda: alice.events("output_missed"))
    missed = steps(relay)["missed"]
    assert 0 < first["bytes"] <= missed
    assert f"{missed} bytes of output missed" in relay("explain", "Alice").stdout
    assert len([e for e in alice.events("notice") if "missed some" in e["text"]]) == 1
    wait_until(lambda: gaps(relay))


def test_output_skipped_after_two_crashes_is_reported_and_a_gap_in_the_recording(relay: Relay) -> None:
    patch = session_patch(
        "import os, signal\n"
        "from relay.readers.auto import AutoReader\n"
        "feed = AutoReader.feed\n"
        "def dies(self, data, *times):\n"
        "    if b'poison' in data:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return feed(self, data, *times)\n"
        "AutoReader.feed = dies\n"
    )
    alice = FakeAgent(relay, "Alice").wrap(env=patch)
    alice.say("poison\n")
    alice.notice("crashed two sessions")
    alice.say("hello\n")
    wait_until(lambda: alice.events("output_missed"), message=alice.log)
    assert steps(relay)["missed"] == len("poison\r\n\r\n")
    wait_until(lambda: gaps(relay))
