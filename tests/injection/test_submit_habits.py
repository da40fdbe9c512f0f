"""How a profile's submit habits and state rules decide when to press Enter and whether it took effect."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from ptyagent import PtyAgent, fake, running, shipped

from relay.agents.profile import Profile, StateRule, Submit
from relay.injection.events import Recognize
from relay.state.events import HooksAlive
from relay.state.evidence import Evidence

WORKING = StateRule("spinner", "working", region="bottom", rows=2, any=(re.compile("^⠹ Working"),))
READY = StateRule("empty input", "ready", region="bottom", rows=1, all=(re.compile("^>$"),))


def _profile(*states: StateRule, **submit: object) -> Profile:
    return replace(shipped(), states=states, submit=replace(Submit(), **submit))  # type: ignore[arg-type]


def _log(agent: PtyAgent) -> list[dict[str, str]]:
    return [json.loads(line) for line in agent.received().splitlines()]


def test_enter_follows_the_text_after_the_agents_delay(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "hasty"), tmp_path, _profile(delay=0.3)) as agent:
            agent.submit("hello")
            assert await agent.ended() == ["injected"]
            (text, started), (enter, ended) = agent.writes[0], agent.writes[-1]
            assert b"hello" in text and enter == b"\r" and ended - started >= 0.3
            # On a busy machine the agent may read both at once; then relay presses Enter again.
            assert list(_log(agent)[-1]) == ["submitted"]

    asyncio.run(main())


def test_enter_waits_until_the_agent_shows_the_text_or_a_placeholder(tmp_path: Path) -> None:
    """Qwen 0.24.4 submits the placeholder of a long paste if Enter comes before it is drawn."""
    body = "\n".join(f"line {n}" for n in range(25))

    async def main() -> None:
        async with running(fake("tui", "paste", "late"), tmp_path, _profile()) as agent:
            for count in (1, 2):  # the first one's placeholder is still on the screen
                agent.submit(body)
                assert await agent.ended(count) == ["injected"] * count
            assert [body in taken["submitted"] for taken in _log(agent)] == [True, True]

    asyncio.run(main())


def test_a_text_that_would_start_with_an_avoided_character_is_rejected(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste"), tmp_path, _profile(avoid="![")) as agent:
            agent.submit("hello")
            assert await agent.ended() == ["rejected"]
            assert "avoid" in agent.outcomes[0][1].detail and not agent.received()

    asyncio.run(main())


@pytest.mark.parametrize("hooked", [False, True])
def test_a_working_agent_is_left_alone(tmp_path: Path, hooked: bool) -> None:
    """Enter would answer a dialog that appears at that moment."""

    async def main() -> None:
        async with running(fake("tui", "working", "paste"), tmp_path, _profile(WORKING)) as agent:
            agent.bus.publish(HooksAlive(hooked))
            await agent.shows("> ")
            agent.submit("hello")
            await agent.verdict("working", "spinner")
            assert "spinner" in (agent.injector.obstacle or "")
            assert not agent.typing
            if hooked:
                assert [each.text for each in await agent.injector.take(1_000)] == ["hello"]

    asyncio.run(main())


def test_an_enter_that_became_a_newline_is_not_taken_for_a_submission(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", "newline"), tmp_path, _profile(READY, WORKING)) as agent:
            agent.submit("hello")
            assert await agent.ended() == ["uncertain"]
            assert "did not show" in agent.outcomes[0][1].detail

    asyncio.run(main())


@pytest.mark.parametrize("option", ["paste", "collapse", "deaf-enter"])
def test_an_empty_input_shows_that_the_text_was_submitted(tmp_path: Path, option: str) -> None:
    async def main() -> None:
        async with running(fake("tui", "paste", option), tmp_path, _profile(READY)) as agent:
            for number in range(3):
                agent.submit(f"text {number}\nof several lines")
            assert await agent.ended(3) == ["injected"] * 3
            assert len(_log(agent)) == 3

    asyncio.run(main())


def test_a_program_that_reads_lines_again_has_taken_the_text(tmp_path: Path) -> None:
    """aider does so, and shows nothing for half a second: a second Enter would answer its next question."""

    async def main() -> None:
        async with running(fake("tui", "paste", "lines"), tmp_path, _profile(READY, WORKING)) as agent:
            agent.submit("hello")
            assert await agent.ended() == ["injected"]
            assert [list(entry) for entry in _log(agent)] == [["submitted"]]

    asyncio.run(main())


@pytest.mark.parametrize(("since", "result"), [(60.0, "injected"), (0.0, "uncertain")])
def test_only_a_current_dialog_holds_back_enter(tmp_path: Path, since: float, result: str) -> None:
    """An older hook report is over once the input was seen empty, even while it shows our text."""

    async def main() -> None:
        async with running(fake("tui", "paste"), tmp_path, _profile(READY)) as agent:

            def evidence() -> tuple[Evidence, ...]:
                typed = b"[/relay" in agent.everything
                return (Evidence("hooks", "prompting", age=since),) if since or typed else ()

            agent.current = evidence  # type: ignore[method-assign]
            agent.submit("hello")
            assert await agent.ended() == [result]
            assert len(_log(agent)) == (result == "injected")

    asyncio.run(main())


@pytest.mark.parametrize("bridged", [True, False])
def test_an_agent_with_hooks_is_not_woken_for_a_text_that_can_wait(tmp_path: Path, bridged: bool) -> None:
    """A turn costs money. Texts that wake the agent overtake; without hooks there is no other way."""

    async def main() -> None:
        async with running(fake("tui", "paste"), tmp_path, _profile()) as agent:
            agent.bus.publish(HooksAlive(bridged))
            await agent.verdict("ready")
            agent.submit("for later", id="later", wakes=False)
            if bridged:
                assert "does not justify a turn" in (agent.injector.obstacle or "")
            agent.submit("now", id="now")
            await agent.until(lambda: len(agent.outcomes) == (1 if bridged else 2))
            assert agent.typing == (["now"] if bridged else ["later", "now"])
            assert [each.id for each in await agent.injector.take(1_000)] == (["later"] if bridged else [])

    asyncio.run(main())


def test_enter_is_not_pressed_once_the_screen_cannot_be_read(tmp_path: Path) -> None:
    """The text is in the input, and the screen may show a dialog by now."""

    async def main() -> None:
        async with running(fake("tui", "paste"), tmp_path) as agent:
            write = agent.write

            def blinded(data: bytes) -> None:
                write(data)
                agent.view.forbid("the screen cannot be read")

            agent.write = blinded  # type: ignore[method-assign]
            agent.submit("hello")
            assert await agent.ended() == ["uncertain"]
            assert b"\r" not in [data for data, _ in agent.writes]
            ((_, outcome),) = agent.outcomes
            assert outcome.detail == "Enter was not pressed: the screen cannot be read"

    asyncio.run(main())


def test_enter_is_not_pressed_once_the_agent_has_reported_the_text(tmp_path: Path) -> None:
    """Some programs submit a paste that ends in a newline; an Enter would answer what they ask next."""

    async def main() -> None:
        async with running(fake("tui", "paste"), tmp_path) as agent:
            write, recognized = agent.write, list[asyncio.Task[list[bool]]]()

            def taken(data: bytes) -> None:
                write(data)
                recognized.append(asyncio.ensure_future(agent.bus.ask(Recognize(data.decode()))))

            agent.write = taken  # type: ignore[method-assign]
            agent.submit("hello")
            assert await agent.ended() == ["injected"]
            assert agent.outcomes[0][1].verified == "hook"
            assert b"\r" not in [data for data, _ in agent.writes]

    asyncio.run(main())
