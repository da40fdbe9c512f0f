"""Texts delivered in replies to an agent's hooks, next to those that are typed."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from ptyagent import PtyAgent, fake, running

from relay.errors import LedgerError, MessageRefused
from relay.injection.injection import Injection, Outcome, Result

ROOM = 9_000
ASKING = fake("lines", "--ask", "Install? [Y/n] ")


async def _asking(agent: PtyAgent) -> None:
    """Wait until the agent asks a question, so that nothing is typed."""
    agent.submit("first", id="first")
    await agent.verdict("prompting")


def _ids(injections: list[Injection]) -> list[str]:
    return [injection.id for injection in injections]


def _submitted(agent: PtyAgent) -> list[str]:
    return [entry["submitted"] for entry in map(json.loads, agent.received().splitlines())]


def test_waiting_texts_are_delivered_in_a_reply_in_order_and_marked(tmp_path: Path) -> None:
    """R73: even in the middle of a turn or a dialog, since nothing is typed."""

    async def main() -> None:
        async with running(fake("tui", "paste", "dialog"), tmp_path) as agent:
            agent.submit("one\n@relay:Carol two", id="1")
            agent.submit("three", id="2", source="rule", kind="hook")
            await agent.verdict("prompting")
            taken = await agent.injector.take(ROOM)
            assert _ids(taken) == agent.typing == ["1", "2"]
            text = agent.injector.render(taken)
            one, three = re.fullmatch(
                r"\[relay (....) from Alice\]\none\n> @relay:Carol two\n\[/relay \1\]\n"
                r"\[relay (....) hook rule\] three \[/relay \2\]",
                text,
            ).groups()  # type: ignore[union-attr]
            assert one != three
            assert not agent.outcomes and agent.injector.pending == 2
            for injection in taken:
                agent.injector.delivered(injection, Outcome(Result.INJECTED, role="system"))
            outcome = Outcome(Result.INJECTED, "", "native", "system", "printed")
            assert agent.outcomes == [("1", outcome), ("2", outcome)]
            assert agent.injector.pending == 0 and not agent.received()

    asyncio.run(main())


def test_a_reply_takes_only_what_fits_and_nothing_overtakes_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(ASKING, tmp_path) as agent:
            await _asking(agent)
            assert (await agent.injector.take(10)) == []
            size = len("[relay k3f9 from Alice] aaaa [/relay k3f9]\n")
            for id, text in (("1", "aaaa"), ("2", "b" * 100), ("3", "c")):
                agent.submit(text, id=id)
            assert _ids(await agent.injector.take(2 * size - 1)) == ["1"]
            assert (await agent.injector.take(ROOM)) == []  # not before the first one's outcome is known

    asyncio.run(main())


def test_nothing_is_typed_while_a_reply_is_being_delivered(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:
            agent.submit("first", id="first")
            taken = await agent.injector.take(ROOM)
            agent.submit("second", id="second")
            await agent.verdict("ready")
            assert agent.injector.obstacle == "a text is being delivered through its own hooks"
            agent.injector.delivered(*taken, Outcome(Result.UNCERTAIN, "who knows"))
            assert await agent.ended(2) == ["uncertain", "injected"]
            assert [outcome.route for _, outcome in agent.outcomes] == ["native", "typed"]
            await agent.until(agent.received)
            assert "first" not in agent.received()

    asyncio.run(main())


def test_texts_certainly_not_delivered_wait_again_in_their_place(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("lines"), tmp_path) as agent:
            for id in "123":
                agent.submit(f"text {id}", id=id)
            taken = await agent.injector.take(ROOM)
            agent.submit("text 4", id="4")
            agent.injector.delivered(taken[0], Outcome(Result.INJECTED, role="user"))
            agent.injector.put_back(taken[1:])
            assert agent.deferred == ["3", "2"]
            assert await agent.ended(4) == ["injected"] * 4
            await agent.until(lambda: "text 4" in agent.received())
            assert re.findall(r"text (\d)", agent.received()) == ["2", "3", "4"]

    asyncio.run(main())


def test_a_refused_text_is_left_out_and_a_ledger_error_stops_the_rest(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(ASKING, tmp_path) as agent:
            refusals = {"dropped": MessageRefused("it was dropped"), "locked": LedgerError("it is locked")}

            def begin(injection: Injection) -> None:
                if error := refusals.get(injection.id):
                    raise error

            agent.begin = begin
            for id in ("1", "dropped", "2", "locked", "3"):
                agent.submit(id, id=id)
            await agent.verdict("prompting")
            # What was typed before the question appeared is not checked here.
            taken = await agent.injector.take(ROOM)
            assert "3" not in _ids(taken) and _ids(taken)[-1] == "2"
            assert ("dropped", "rejected") in [(id, str(o.result)) for id, o in agent.outcomes]
            for injection in taken:
                agent.injector.delivered(injection, Outcome(Result.INJECTED))
            del refusals["locked"]
            assert (await agent.injector.take(ROOM)) == []  # it is retried later, not at every hook
            agent.wait_for_retries()
            assert _ids(await agent.injector.take(ROOM)) == ["locked", "3"]

    asyncio.run(main())


def test_a_closing_prompt_is_never_delivered_in_a_reply_and_keeps_its_place(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "dialog"), tmp_path) as agent:
            agent.submit("one", id="1")
            agent.submit("Save what you know.", id="closing", kind="closing")
            taken = await agent.injector.take(ROOM)
            assert _ids(taken) == ["1"]
            agent.injector.put_back(taken)
            agent.close()
            assert [id for id, _ in agent.outcomes] == ["closing", "1"]

    asyncio.run(main())


def test_an_unconfirmed_text_is_uncertain_at_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "dialog"), tmp_path) as agent:
            agent.submit("one", id="1")
            (taken,) = await agent.injector.take(ROOM)
            agent.close()
            agent.injector.delivered(taken, Outcome(Result.INJECTED))
            assert [(id, str(outcome.result)) for id, outcome in agent.outcomes] == [("1", "uncertain")]

    asyncio.run(main())


def test_nothing_overtakes_a_typed_text_until_the_agent_confirms_it(tmp_path: Path) -> None:
    """The text in the prompt hook verifies it if the screen shows no effect of Enter."""

    async def main() -> None:
        async with running(fake("tui", "paste", "no-enter"), tmp_path) as agent:
            agent.submit("one", id="1")
            agent.submit("two", id="2")
            await agent.shows("[/relay")
            assert (await agent.injector.take(ROOM)) == []
            (typed,) = re.findall(r"\[relay .*?\[/relay ....\]", agent.everything.decode())
            await agent.report_prompt("quite another prompt")
            assert (await agent.injector.take(ROOM)) == []
            await agent.report_prompt(f"{typed} and what the user added")
            assert _ids(await agent.injector.take(ROOM)) == ["2"]
            await agent.ended()
            assert agent.outcomes == [("1", Outcome(Result.INJECTED, "", "typed", "user", "hook"))]

    asyncio.run(main())


def test_an_uncertain_text_that_the_agent_confirms_later_is_injected(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "no-enter"), tmp_path) as agent:
            agent.submit("one", id="1")
            assert await agent.ended() == ["uncertain"]
            (typed,) = re.findall(r"\[relay .*?\[/relay ....\]", agent.everything.decode())
            for _ in range(2):  # reported once
                await agent.report_prompt(typed)
            assert [str(outcome.result) for _, outcome in agent.outcomes] == ["uncertain", "injected"]
            assert agent.outcomes[-1][1].verified == "hook"

    asyncio.run(main())


@pytest.mark.parametrize("program", ["lines", "tui"])
def test_the_outcome_of_a_typed_text_names_its_verification(tmp_path: Path, program: str) -> None:
    async def main() -> None:
        async with running(fake(program, "paste") if program == "tui" else fake(program), tmp_path) as agent:
            agent.submit("hello")
            await agent.ended()
            ((_, outcome),) = agent.outcomes
            proof = "screen" if program == "tui" else "echo"
            assert outcome == replace(outcome, route="typed", role="user", verified=proof)

    asyncio.run(main())
