"""Priorities: which text is typed first, which joins a reply, and which waits for an idle agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ptyagent import PtyAgent, fake, running

from relay.errors import RelayError
from relay.eventbus import EventBus, answers
from relay.injection.events import MayBegin
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.queue import HASTY, RETRY, InjectionQueue
from relay.message import Priority

ROOM = 9_000
ASKING = fake("lines", "--ask", "Install? [Y/n] ")
DIALOG = fake("tui", "paste", "dialog")


def _ids(injections: list[Injection]) -> list[str]:
    return [injection.id for injection in injections]


async def _asking(agent: PtyAgent) -> None:
    """Wait until the agent asks a question, so that nothing is typed."""
    agent.submit("first", id="first")
    await agent.verdict("prompting")


def _submit(agent: PtyAgent, **texts: str) -> None:
    """Submit each of `texts`; the first letter of its id is its priority."""
    for id, text in texts.items():
        priority = {"u": Priority.URGENT, "n": Priority.NORMAL, "l": Priority.LOW}[id[0]]
        agent.submit(text, id=id, priority=priority)


def test_urgent_texts_are_typed_first_and_low_ones_last_each_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(ASKING, tmp_path, idle=0.0) as agent:
            await _asking(agent)
            _submit(agent, l1="low", n1="normal", u1="urgent", l2="low", n2="normal", u2="urgent")
            agent.submit("Save.", id="closing", kind="closing")
            agent.press(b"y\n")
            agent.rest()
            assert await agent.ended(8) == ["injected"] * 8
            assert agent.typing[1:] == ["closing", "u1", "u2", "n1", "n2", "l1", "l2"]

    asyncio.run(main())


def test_senders_take_turns_and_each_keeps_its_order(tmp_path: Path) -> None:
    """S10: Carol's few texts used to wait for everything that Mallory had sent earlier."""

    async def main() -> None:
        async with running(ASKING, tmp_path) as agent:
            await _asking(agent)
            for number in range(6):
                agent.submit("text", id=f"mallory-{number}", source="MALLORY" if number % 2 else "Mallory")
            for number in range(2):
                agent.submit("text", id=f"carol-{number}", source="Carol")
            agent.submit("text", id="hook", source="ruff", kind="hook")
            agent.press(b"y\n")
            agent.rest()
            assert await agent.ended(10) == ["injected"] * 10
            assert agent.typing[1:] == [
                *("mallory-0", "carol-0", "hook", "mallory-1", "carol-1"),
                *(f"mallory-{number}" for number in range(2, 6)),
            ]

    asyncio.run(main())


def test_a_sender_of_urgent_texts_only_does_not_starve_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(ASKING, tmp_path) as agent:
            await _asking(agent)
            for number in range(HASTY + 3):
                agent.submit("text", id=f"u{number:02}", source="Mallory", priority=Priority.URGENT)
            for number in range(2):
                agent.submit("text", id=f"carol-{number}", source="Carol")
            agent.submit("text", id="urgent", source="Carol", priority=Priority.URGENT)
            agent.press(b"y\n")
            agent.rest()
            assert await agent.ended(HASTY + 7) == ["injected"] * (HASTY + 7)
            assert agent.typing[1:] == [
                *("u00", "urgent"),
                *(f"u{number:02}" for number in range(1, HASTY + 1)),
                *("carol-0", f"u{HASTY + 1:02}", "carol-1", f"u{HASTY + 2:02}"),
            ]

    asyncio.run(main())


def test_a_low_text_is_not_typed_before_the_agent_has_been_idle(tmp_path: Path) -> None:
    """It delays no other text."""

    async def main() -> None:
        async with running(fake("lines"), tmp_path, idle=3600.0) as agent:
            await agent.verdict("ready")
            _submit(agent, l1="low")
            assert "idle for 3600 s" in (agent.injector.obstacle or "")
            _submit(agent, n1="normal")
            assert await agent.ended() == ["injected"]
            await agent.verdict("ready")
            assert agent.typing == ["n1"] and agent.injector.pending == 1

    asyncio.run(main())


def test_a_low_text_of_several_lines_is_typed_completely_once_started(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("lines"), tmp_path, idle=0.6) as agent:
            _submit(agent, l1="one\ntwo\nthree")
            assert await agent.ended() == ["injected"]
            await agent.until(lambda: "three" in agent.received())

    asyncio.run(main())


def test_a_low_text_neither_joins_nor_extends_a_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(DIALOG, tmp_path) as agent:
            _submit(agent, l1="low")
            assert (await agent.injector.take(ROOM)) == await agent.injector.take(ROOM, extends=True) == []
            _submit(agent, n1="normal", u1="urgent")
            assert _ids(await agent.injector.take(ROOM)) == ["u1", "n1"]

    asyncio.run(main())


def test_a_text_too_large_for_a_reply_holds_back_only_its_own_priority(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(DIALOG, tmp_path) as agent:
            _submit(
                agent, u1="first", u2="x" * ROOM, u3="behind it", n1="normal", n2="y" * ROOM, n3="behind it"
            )
            taken = await agent.injector.take(ROOM)
            assert _ids(taken) == ["u1", "n1"]
            for injection in taken:
                agent.injector.delivered(injection, Outcome(Result.INJECTED))
            assert (await agent.injector.take(ROOM)) == []

    asyncio.run(main())


def test_a_turn_is_not_extended_while_an_urgent_text_must_be_typed(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(DIALOG, tmp_path) as agent:
            _submit(agent, u1="x" * ROOM, n1="normal")
            assert (await agent.injector.take(ROOM, extends=True)) == []
            assert _ids(await agent.injector.take(ROOM)) == ["n1"]

    asyncio.run(main())


def test_a_text_that_fits_the_next_reply_is_not_overtaken(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(DIALOG, tmp_path) as agent:
            _submit(agent, u1="x" * 5_000, u2="y" * 5_000, n1="normal")
            assert _ids(await agent.injector.take(ROOM)) == ["u1"]

    asyncio.run(main())


def test_a_text_that_was_put_back_comes_first_in_its_priority(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(DIALOG, tmp_path) as agent:
            _submit(agent, u1="urgent", n1="normal", n2="normal")
            taken = await agent.injector.take(ROOM)
            _submit(agent, n3="normal", u2="urgent")
            agent.injector.put_back(taken)
            assert _ids(await agent.injector.take(ROOM)) == ["u1", "u2", "n1", "n2", "n3"]

    asyncio.run(main())


def test_a_refused_text_is_tried_again_ever_less_often() -> None:
    class Refuses:
        @answers(MayBegin)
        async def may_begin(self, _: MayBegin, __: object) -> None:
            raise RelayError("the disk is full.")

    async def main() -> None:
        bus, delays = EventBus(), list[float]()
        bus.add(Refuses())
        queue = InjectionQueue(bus, lambda: 0.0)
        injection = Injection("n1", "text", "Bob", "message")
        queue.submit(injection)
        for _ in range(7):
            await queue.begin(injection, begins=True)
            refusal = queue.refused(injection)
            assert refusal is not None
            delays.append(refusal.until)
        assert delays == [min(RETRY.first * 2**number, RETRY.last) for number in range(7)]

    asyncio.run(main())
