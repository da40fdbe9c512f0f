"""No directive is lost between the terminal and the ledger, and one that is not acted on is told."""

from __future__ import annotations

import sys
from pathlib import Path

from ledgers import locked
from relay.home import Home
from session.puppet import Puppet, messages
from support import Relay, clean_environment, session_patch, wait_until

QUICK = (
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


def test_a_directive_waits_for_a_ledger_that_others_keep_locked(relay: Relay) -> None:
    """S15: where many write at once, one may wait for longer than a try does."""
    refused = relay.home / "refused"
    alice = Puppet(relay, "Alice").wrap(env=session_patch(QUICK.format(refused=str(refused))))
    Puppet(relay, "Bob").wrap()
    with locked(Home.from_env(clean_environment(relay.home)).ledger):
        alice.say("@relay:Bob one\n@relay:Bob two")
        wait_until(refused.exists)
    wait_until(lambda: bodies(relay) == ["one", "two"], message=alice.log)
    assert not alice.events("directive_failed")


def test_last_words_that_are_cut_off_are_told(relay: Relay) -> None:
    """Those that were begun, too."""
    patch = session_patch(
        "import asyncio, functools\n"
        "from relay.builtin import relay as module\n"
        "from relay.session import session\n"
        "session.FAREWELL = session.AFTERTHOUGHT = 0.2\n"
        "async def deliver(target, message, ctx):\n"
        "    await asyncio.Event().wait()\n"
        "module.deliver = functools.wraps(module.deliver)(deliver)\n"
    )
    alice = Puppet(relay, "Alice").wrap(env=patch)
    alice.say("@relay:Bob one")
    wait_until(lambda: alice.events("directive"))
    alice.exit()
    alice.told("1 directive of Alice's last words came to nothing")


WRITER = """
import os, sys, time
os.write(1, b"@relay:Bob the first half")
while not os.path.exists("go"):
    time.sleep(0.001)
os.write(1, b" and the second\\r\\n")
sys.stdin.read()
"""


def test_a_line_is_not_cut_where_the_program_goes_on_while_it_is_looked_at(relay: Relay) -> None:
    """It wrote the rest and then slept in a read, after it had been seen that nothing was pending."""
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
        "from relay.features.output_reader import OutputReader\n"
        "output = OutputReader._output\n"
        "def noted(self, record):\n"
        "    with open('printed', 'ab') as log:\n"
        "        log.write(record.data)\n"
        "    return output(self, record)\n"
        "OutputReader._output = noted\n"
    )
    Puppet(relay, "Bob").wrap()
    folder = relay.home / "writer"
    folder.mkdir()
    (folder / "printed").touch()
    Path(folder / "writer.py").write_text(WRITER)
    relay("wrap", "-d", "-n", "Alice", sys.executable, "writer.py", cwd=folder, env=patch)
    wait_until(lambda: bodies(relay) == ["the first half and the second"], message=lambda: str(bodies(relay)))
