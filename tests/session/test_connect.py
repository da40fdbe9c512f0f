"""`relay.connect`: programs as members of a team."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

import relay as package
from relay import RelayError
from relay.control.sessions import call, socket_of
from relay.errors import NameInUse, UnknownRecipient, UsageError
from relay.features.mailbox import WINDOW
from relay.features.program_inbox import ProgramInbox
from relay.home import Home
from relay.membership import ProgramMember
from relay.message import State
from relay.messaging.ledger import Ledger
from session.fake_agent import FakeAgent, messages, ps
from support import PATIENCE, Relay, many, wait_until

pytestmark = pytest.mark.own_team


@pytest.fixture(autouse=True)
def _in_the_home(home: Path, relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAY_HOME", str(home))
    if relay.team is not None:
        monkeypatch.setenv("RELAY_TEAM", relay.team)
    monkeypatch.chdir(home)


@pytest.fixture
def program(relay: Relay) -> Iterator[Any]:
    """Return a function that starts a program, and returns it once it has printed its first line."""
    started = []

    def start(code: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code]
        process = subprocess.Popen(
            command, env=relay.environment, cwd=relay.home, stdin=PIPE, stdout=PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


TAKES = """
import relay
with relay.connect("ci") as me:
    for message in me.messages():
        print(message.body, flush=True)
        input()
"""
"""A program that prints the first message it gets, and stays in the body of its loop."""


def bodies(me: ProgramMember, number: int) -> list[str]:
    """Return the bodies of the next messages."""
    return [message.body for _, message in zip(range(number), me.messages(), strict=False)]


def states(relay: Relay) -> list[str]:
    return [row["state"] for row in messages(relay)]


def test_a_program_and_an_agent_talk(relay: Relay) -> None:
    alice = FakeAgent(relay, "Alice").wrap()
    with package.connect("ci") as me:
        (question,) = me.send("Alice", "Are you done?", wait=60)
        assert question.state is State.INJECTED
        alice.receives("Are you done?")
        assert [(each.name, each.online) for each in me.agents()] == [("Alice", True)]
        alice.say("@relay:ci nearly")
        answer = next(me.messages())
        assert (answer.sender, answer.body, answer.reply_to) == ("Alice", "nearly", question.id)
        assert me.reply(answer, "Thanks.").thread == question.id
        alice.receives("Thanks.")
    (row,) = [row for row in messages(relay) if row["id"] == answer.id]
    assert (row["state"], row["route"]) == ("injected", "program")
    assert "program" in relay("audit", "--to", "ci").stdout


def test_the_asynchronous_twin_does_the_same(relay: Relay) -> None:
    alice = FakeAgent(relay, "Alice").wrap()

    async def main() -> list[str]:
        async with package.connect("bot") as me:
            await me.send("Alice", "Ask me.")
            await asyncio.to_thread(alice.receives, "Ask me.")
            alice.say("@relay:bot one")
            alice.say("@relay:bot two")
            got = []
            async for message in me.messages():
                got.append(message.body)
                await me.reply(message, f"to {message.body}")
                if len(got) == 2:
                    break
            assert [each.name for each in await me.agents()] == ["Alice"]
            return got

    assert asyncio.run(main()) == ["one", "two"]
    alice.receives("to two")
    wait_until(lambda: states(relay) == ["injected"] * 5)


def test_a_program_is_listed_and_only_ends_by_itself(relay: Relay) -> None:
    with package.connect("ci", channels=["#ops"]):
        (row,) = ps(relay)
        assert (row["name"], row["agent"], row["agent_pid"]) == ("ci", "program", os.getpid())
        assert row["terminal_pid"] is None
        assert "ci" in relay("channels").stdout
        assert "does other work" in relay("explain", "ci").stdout
        for command in ("stop", "restart", "reload", "peek", "logs", "answer"):
            refused = relay(command, "ci", *(["1"] if command == "answer" else []), check=False)
            assert refused.returncode and "ci is a program without a terminal" in refused.stderr, command
        assert "No agent is running." in relay("stop", "--all").stdout
        assert "No agent is running." in relay("reload", "--all").stdout
    assert ps(relay) == []


def test_a_name_in_use_is_refused_with_advice(relay: Relay) -> None:
    FakeAgent(relay, "Alice").wrap()
    with package.connect("ci"):
        for name in ("CI", "alice"):
            with pytest.raises(NameInUse, match=rf"in use in team {relay.team}.*Connect with another"):
                package.connect(name).__enter__()
        taken = relay("wrap", "-d", "-n", "ci", "true", check=False)
        assert taken.returncode and "a session called ci is running" in taken.stderr
    membership = package.connect("ci")
    with membership, pytest.raises(NameInUse):
        membership.__enter__()
    with membership as me:
        assert me.agents()


def test_a_mistake_raises_an_error_that_says_what_to_do(relay: Relay) -> None:
    with pytest.raises(RelayError, match="name"):
        package.connect("two words")
    with pytest.raises(TypeError, match=r"such as \['#ops'\]"):
        package.connect("ci", channels="#ops")
    with package.connect("ci") as me, pytest.raises(UnknownRecipient, match=r"no agent called 'Nobody'"):
        me.send("Nobody", "hello")
    with pytest.raises(UsageError, match=f"ci has left the team {relay.team}"):
        me.agents()


def test_a_body_that_raises_does_not_acknowledge_its_message(relay: Relay) -> None:
    with package.connect("ci"):
        pass
    relay("send", "ci", "first")
    relay("send", "ci", "second")
    given = []
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), package.connect("ci") as me:
            for message in me.messages():
                given.append(message.id)
                raise ZeroDivisionError
        assert states(relay) == ["stored", "stored"]
    assert given[0] == given[1]
    with package.connect("ci") as me:
        assert bodies(me, 2) == ["first", "second"]
    assert states(relay) == ["injected", "injected"]


def test_a_program_killed_in_the_body_leaves_the_message_uncertain(relay: Relay, program: Any) -> None:
    with package.connect("ci"):
        relay("send", "ci", "hello")
        relay("send", "ci", "and later")
    bot = program(TAKES)
    bot.kill()
    bot.wait()
    with package.connect("ci") as me:
        assert bodies(me, 1) == ["and later"]
    assert states(relay) == ["uncertain", "injected"]


def test_ctrl_c_in_the_body_gives_the_message_back(relay: Relay, program: Any) -> None:
    with package.connect("ci"):
        relay("send", "ci", "hello")
    bot = program(TAKES)
    bot.send_signal(signal.SIGINT)
    bot.wait()
    assert states(relay) == ["stored"]
    assert ps(relay) == []


def test_messages_wait_for_a_program_of_the_same_folder(relay: Relay, tmp_path: Path) -> None:
    with package.connect("ci"):
        pass
    relay("send", "ci", "hello")
    os.chdir(tmp_path)
    with package.connect("ci") as me:
        assert list(me.messages(timeout=0.1)) == []
    os.chdir(relay.home)
    with package.connect("ci") as me:
        assert bodies(me, 1) == ["hello"]


def test_many_waiting_messages_come_once_each_in_order_and_urgent_ones_first(relay: Relay) -> None:
    number = many(500)
    with package.connect("ci"), package.connect("other") as other:
        for each in range(number):
            other.send("ci", str(each))
        other.send("ci", "now", priority="urgent")
        relay("release", "--all")  # the runaway guard holds what exceeds its rate
    with package.connect("ci") as me:
        assert bodies(me, number + 1) == ["now", *map(str, range(number))]


def test_a_program_may_begin_a_loop_for_each_message(relay: Relay) -> None:
    """The message of a loop that it has left is acknowledged, but not that of one that it is in."""
    with package.connect("ci") as me, package.connect("other") as other:
        other.send("ci", "outer")
        for outer in me.messages():
            for each in range(WINDOW + 2):
                other.send("ci", str(each))
                assert next(me.messages()).body == str(each)
            assert [row["state"] for row in messages(relay, outer.id)] == ["stored"]
            break
    assert set(states(relay)) == {"injected"}


def test_a_task_may_begin_a_loop_for_each_message(relay: Relay) -> None:
    async def main() -> None:
        async with package.connect("ci") as me, package.connect("other") as other:
            for each in range(WINDOW + 2):
                await other.send("ci", str(each))
                assert (await anext(me.messages())).body == str(each)

    asyncio.run(main())
    assert set(states(relay)) == {"injected"}


def test_without_a_time_to_wait_a_program_gets_what_waits(relay: Relay) -> None:
    with package.connect("ci"):
        pass
    for each in range(3):
        relay("send", "ci", str(each))
    with package.connect("ci") as me:
        assert [message.body for message in me.messages(timeout=0)] == ["0", "1", "2"]


def test_several_loops_share_the_messages(relay: Relay) -> None:
    got: list[str] = []

    async def main() -> None:
        async with package.connect("ci") as me, asyncio.TaskGroup() as workers:

            async def work() -> None:
                async for message in me.messages(timeout=2):
                    got.append(message.body)

            for _ in range(3):
                workers.create_task(work())
            for each in range(20):
                await asyncio.to_thread(relay, "send", "ci", str(each))

    asyncio.run(main())
    assert sorted(got, key=int) == list(map(str, range(20)))
    assert set(states(relay)) == {"injected"}


def test_messages_within_the_home_need_no_broker(relay: Relay) -> None:
    config = relay.home / "config" / "relay.toml"
    config.parent.mkdir()
    config.write_text('broker = "mqtt://127.0.0.1:1"\n')
    with package.connect("ci") as me:
        assert "off the bus" in wait_until(lambda: "off the bus" in (out := relay("ps").stdout) and out)
        relay("send", "ci", "hello")
        assert bodies(me, 1) == ["hello"]


@pytest.mark.own_home
def test_an_agents_program_cannot_join(relay: Relay) -> None:
    """A daemon neither."""
    code = """
import os, relay
for daemon in (False, True):
    if daemon and os.fork():
        continue
    if daemon:
        os.setsid()
        for name in [name for name in os.environ if name.startswith("RELAY") and name != "RELAY_HOME"]:
            del os.environ[name]
    try:
        with relay.connect("other"):
            said = "joined"
    except relay.RelayError as error:
        said = str(error)
    with open(f"said-{daemon}", "w") as file:
        file.write(said + chr(10))
input()
"""
    relay("wrap", "-d", "-n", "Alice", sys.executable, "-c", code)
    for daemon in (False, True):
        path = relay.home / f"said-{daemon}"
        said = wait_until(
            lambda path=path: path.exists() and path.read_text().endswith("\n") and path.read_text()
        )  # type: ignore[misc]
        assert said.startswith("an agent's programs do not join its team"), said
    journal = [json.loads(line) for line in relay("events", "--json").stdout.splitlines()]
    assert [entry["operation"] for entry in journal if entry["event"] == "refused"] == ["connect"] * 2


@pytest.mark.own_home
def test_no_other_process_sends_through_a_program(home: Path) -> None:
    with package.connect("ci"):
        path = socket_of(Home.from_env(), "default", "ci")
        with pytest.raises(UsageError, match="is a program"):
            call(path, {"op": "send", "to": "you", "body": "not from ci"})
        with Ledger(Home.from_env().ledger) as ledger:
            assert ledger.messages() == []


def test_a_program_that_is_cancelled_while_it_leaves_has_left_all_the_same(relay: Relay) -> None:
    async def main() -> None:
        done = asyncio.Event()

        async def join() -> None:
            async with package.connect("ci"):
                done.set()

        task = asyncio.create_task(join())
        await done.wait()  # by now, it leaves
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    wait_until(lambda: ps(relay) == [] and not names_of_sessions())


def names_of_sessions() -> list[str]:
    """Return the names of the threads of sessions."""
    return [each.name for each in threading.enumerate() if each.name.startswith("relay: ")]


def test_a_wait_that_is_cancelled_loses_no_message(relay: Relay) -> None:
    async def main() -> list[str]:
        async with package.connect("ci") as me:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await anext(me.messages())
            await asyncio.to_thread(relay, "send", "ci", "hello")
            return [message.body async for message in me.messages(timeout=1)]

    assert asyncio.run(main()) == ["hello"]


def test_a_message_that_came_as_its_loop_was_cancelled_goes_to_the_next_loop(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = ProgramInbox.take

    async def cancelled(*arguments: Any) -> None:
        await take(*arguments)
        raise asyncio.CancelledError

    with package.connect("ci") as me:
        relay("send", "ci", "first")
        loop = me.messages()
        assert next(loop).body == "first"
        relay("send", "ci", "second")
        with monkeypatch.context() as patch, pytest.raises(CancelledError):
            patch.setattr(ProgramInbox, "take", cancelled)
            next(loop)
        again = next(me.messages(timeout=PATIENCE), None)
        assert again is not None and again.body == "second"
    assert states(relay) == ["injected", "injected"]
