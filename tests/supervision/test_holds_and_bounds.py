"""Holds, bounds, loops, idle time and the limit of idle handlers, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from relay.agents.events import HookReported, UsageChanged
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.usage import Tokens
from relay.errors import RelayError
from relay.eventbus import answers
from relay.features.holds import SAME_CALLS, SILENCE, Bounds, Holds, LoopWatch
from relay.features.idle import IdleGrace, IdleWatch
from relay.features.turn_outcome import SETTLES, TurnOutcome
from relay.hooks.events import Idle
from relay.injection.events import Inject, MayBegin, Occupied, TryAgain, Withdraw
from relay.injection.injection import Injection, Kind, nudge
from relay.lifecycle import Describe, SessionBegan, SessionClosed, StopRequested
from relay.messaging.events import AddItem, EndItem, MessageGiven
from relay.state.events import PromptSubmitted, StateChanged, StateJudged, TurnBegan, TurnOver
from relay.state.readiness import Readiness, Verdict
from relay.state.states import AgentState
from relay.supervision.events import Escalate, Hold, HoldOver, Incident, PhaseEntered
from relay.supervision.policy import Supervision
from relay.supervision.states import Phase
from relay.terminal.events import AgentExited, KeyChosen, KeysTyped, Notify
from supervision.test_action_runner import message
from supervision.world import World

USER, OTHER = PromptSubmitted(by_user=True), PromptSubmitted(by_user=False)
READY, WORKS = StateChanged("working", "ready"), StateChanged("ready", "working")


# Holds.


def held(folder: Path) -> World:
    world = World(folder)
    world.bus.add(Holds(world.bus, world.notes(), name="Alice"))
    world.bus.publish(SessionBegan())
    return world


def may_begin(world: World, kind: Kind) -> bool:
    try:
        asyncio.run(world.bus.ask(MayBegin(Injection("i1", "text", "Bob", kind), begins=True)))
    except RelayError as error:
        assert "it is held: it began 9 turns" in str(error) and "relay release --agent Alice" in str(error)
        return False
    return True


@pytest.mark.parametrize("kind", ["message", "hook", "notice", "task", "nudge", "closing"])
def test_a_held_agent_gets_only_its_closing_prompt(tmp_path: Path, kind: Kind) -> None:
    world = held(tmp_path)
    assert may_begin(world, kind)
    world.bus.publish(Hold("began 9 turns"))
    assert may_begin(world, kind) == (kind == "closing")


@pytest.mark.parametrize(
    ("event", "ends"),
    [
        (USER, True),
        (OTHER, False),
        (MessageGiven(message(), begins=True), False),
        (TurnBegan(), False),
        (StopRequested("restart"), True),
        (StopRequested("restart", by_user=False), False),
        (StopRequested(), False),
    ],
)
def test_only_the_user_ends_a_hold(tmp_path: Path, event: Any, ends: bool) -> None:
    world = held(tmp_path)
    world.bus.publish(Hold("began 9 turns"))
    world.bus.publish(event)
    assert may_begin(world, "message") == ends
    assert len(world.of(HoldOver)) == len(world.of(TryAgain)) == len(world.of(EndItem)) == ends
    phases = [each.phase for each in world.of(PhaseEntered)]
    assert phases == [Phase.HELD, Phase.UP] if ends else [Phase.HELD]


def test_a_hold_is_escalated_once_and_survives_its_session(tmp_path: Path) -> None:
    world = held(tmp_path)
    world.bus.publish(Hold("began 9 turns"))
    world.bus.publish(Hold("made the same call"))
    assert [each.what for each in world.of(Escalate)] == ["Alice began 9 turns, and is held."]
    again = held(tmp_path)
    assert not may_begin(again, "message")
    assert not again.of(Escalate) and again.of(AddItem) == [
        AddItem(
            "held",
            "Alice began 9 turns, and is held. To let it continue, type a prompt into its terminal, "
            "or run `relay release --agent Alice`.",
        )
    ]
    asyncio.run(again.bus.ask(SessionClosed(ended=True)))
    assert may_begin(held(tmp_path), "message")


def test_release_restarts_an_ended_agent(tmp_path: Path) -> None:
    world = held(tmp_path)
    (feature,) = (each.__self__ for each, _ in world.bus._handlers[Hold])  # type: ignore[attr-defined]
    assert asyncio.run(feature.release(cast(Any, None))) == {"ok": True, "held": False}
    world.bus.publish(AgentExited(1))
    assert asyncio.run(feature.release(cast(Any, None)))["held"]
    assert world.of(KeyChosen) == [KeyChosen("r")]


# Bounds.


def bounded(folder: Path, *, life: str = "s1", known: bool = True, **policy: Any) -> tuple[World, Bounds]:
    world = World(folder)
    bounds = Bounds(
        world.bus,
        Supervision(**policy),
        world.notes(),
        name="Alice",
        life=life,
        known=known,
        clock=world.clock,
    )
    world.bus.add(bounds)
    world.bus.publish(SessionBegan())
    return world, bounds


def test_too_many_turns_without_the_user_hold_the_agent(tmp_path: Path) -> None:
    world, _ = bounded(tmp_path, max_unattended_turns=3)
    turn = (OTHER, TurnBegan())
    for event in (*turn, *turn, USER, TurnBegan(), *turn, *turn):
        world.bus.publish(event)
    assert not world.of(Hold)
    world, _ = bounded(tmp_path, max_unattended_turns=3)  # the next session
    world.bus.publish(TurnBegan())
    assert world.of(Hold) == [Hold("started 3 turns without your input")]


def test_prompts_are_counted_if_turns_are_unknown(tmp_path: Path) -> None:
    world, _ = bounded(tmp_path, known=False, max_unattended_turns=2)
    for event in (USER, OTHER, TurnBegan()):
        world.bus.publish(event)
    assert not world.of(Hold)
    world.bus.publish(OTHER)
    assert world.of(Hold) == [Hold("started 2 turns without your input")]


def test_an_agent_without_bounds_is_never_held(tmp_path: Path) -> None:
    world, bounds = bounded(tmp_path, max_unattended_turns=0)
    for _ in range(500):
        world.bus.publish(TurnBegan())
    bounds.spent(10**9, 1e6)
    world.bus.publish(READY)
    world.clock.passes(1e7)
    assert not world.of(Hold) and not world.of(Escalate)


def test_too_much_time_without_the_user_holds_the_agent(tmp_path: Path) -> None:
    world, _ = bounded(tmp_path, max_runtime=1000.0)
    world.clock.passes(900)
    world.bus.publish(USER)
    world.clock.passes(999)
    assert not world.of(Hold)
    world.clock.passes(1)
    assert world.of(Hold) == [Hold("ran for 17 min without your input")]
    world.bus.publish(HoldOver())
    world.clock.passes(999)
    assert len(world.of(Hold)) == 1
    world.clock.passes(1)
    assert len(world.of(Hold)) == 2


@pytest.mark.parametrize(
    ("policy", "spends", "shown"),
    [
        (
            {"max_tokens": 1000},
            lambda part: (int(1000 * part), 0.0),
            ("800 of 1,000 tokens", "1,000 of 1,000 tokens"),
        ),
        ({"max_cost": 5.0}, lambda part: (0, 5 * part), ("$4.00 of $5.00", "$5.00 of $5.00")),
    ],
)
def test_a_cap_warns_and_holds_at_the_end_of_the_turn(
    tmp_path: Path, policy: dict[str, Any], spends: Any, shown: tuple[str, str]
) -> None:
    world, bounds = bounded(tmp_path, **policy)
    world.bus.publish(WORKS)
    bounds.spent(*spends(0.79))
    assert not world.of(Escalate)
    bounds.spent(*spends(0.8))
    bounds.spent(*spends(0.9))
    (escalation,) = world.of(Escalate)
    assert shown[0] in escalation.what
    bounds.spent(*spends(1.0))
    assert not world.of(Hold)
    world.bus.publish(READY)
    assert world.new(Hold) == [Hold(f"has used {shown[1]}")]
    world.bus.publish(HoldOver())  # the same amount again
    world.bus.publish(WORKS)
    bounds.spent(*spends(1.9))
    world.bus.publish(READY)
    assert not world.of(Hold) and len(world.of(Escalate)) == 2
    bounds.spent(*spends(2.0))  # its transcript is read after the end of its turn
    assert len(world.of(Hold)) == 1


def test_a_cap_exceeded_at_once_gives_no_warning(tmp_path: Path) -> None:
    world, bounds = bounded(tmp_path, max_tokens=1000)
    world.bus.publish(WORKS)
    bounds.spent(1001, 0.0)
    assert not world.of(Escalate)


@pytest.mark.parametrize("kind", ["message", "hook", "nudge", "closing"])
def test_an_agent_at_its_cap_gets_only_its_closing_prompt(tmp_path: Path, kind: Kind) -> None:
    """Otherwise messages in replies to its hooks could extend its turn without end."""
    world, bounds = bounded(tmp_path, max_tokens=1000)
    world.bus.publish(WORKS)

    def ask() -> None:
        asyncio.run(world.bus.ask(MayBegin(Injection("i1", "text", "Bob", kind), begins=True)))

    bounds.spent(999, 0.0)
    ask()
    bounds.spent(1000, 0.0)
    if kind == "closing":
        ask()
    else:
        with pytest.raises(RelayError, match="1,000 of 1,000 tokens, and is held at the end of its turn"):
            ask()
    world.bus.publish(HoldOver())
    ask()


def test_usage_reported_by_the_agent_counts_towards_its_caps(tmp_path: Path) -> None:
    world, _ = bounded(tmp_path, max_tokens=1000, max_cost=2.0)
    world.bus.publish(WORKS)
    world.bus.publish(UsageChanged(Tokens(input=800, output=100), None, 1))
    world.bus.publish(UsageChanged(Tokens(input=900, output=100), 1.9, 1))
    assert len(world.of(Escalate)) == 2
    world.bus.publish(READY)
    assert world.of(Hold)[0] == Hold("has used 1,000 of 1,000 tokens")


def test_usage_of_earlier_sessions_and_lives_counts(tmp_path: Path) -> None:
    for life, tokens in (("s1", 300), ("s1", 500), ("s2", 200), ("s2", 400)):
        world, bounds = bounded(tmp_path, life=life, max_tokens=1000)
        assert not world.of(Escalate)
        bounds.spent(tokens, 0.0)
        world.bus.publish(READY)
        assert not world.of(Hold)
    assert len(world.of(Escalate)) == 1
    world, bounds = bounded(tmp_path, life="s3", max_tokens=1000)
    bounds.spent(99, 0.0)
    world.bus.publish(READY)
    assert not world.of(Hold) and not world.of(Escalate)
    bounds.spent(100, 0.0)
    assert world.of(Hold) == [Hold("has used 1,000 of 1,000 tokens")]


# Loops and silence.


def watched(folder: Path, *, draws: bool = True) -> World:
    world = World(folder)
    world.bus.add(LoopWatch(world.bus, world.terminal, name="Alice", known=draws, clock=world.clock))
    return world


def call(command: str, agent_id: str = "") -> HookReported:
    event = NativeEvent(
        NativeName.TOOL_PRE, "claude", "PreToolUse", tool_name="Bash", tool_input={"command": command},
        agent_id=agent_id,
    )  # fmt: skip
    return HookReported(event, True)


def test_repeating_the_same_call_holds_the_agent(tmp_path: Path) -> None:
    world = watched(tmp_path)
    for _ in range(SAME_CALLS - 1):
        world.bus.publish(call("make"))
    assert not world.of(Hold)
    world.bus.publish(call("make"))
    world.bus.publish(call("make"))
    assert world.of(Hold) == [Hold("made the same call of Bash 8 times in a row")]


@pytest.mark.parametrize("between", [call("ls"), TurnBegan(), HoldOver()])
def test_another_call_or_turn_resets_the_loop_count(tmp_path: Path, between: Any) -> None:
    world = watched(tmp_path)
    for number in range(3 * SAME_CALLS):
        world.bus.publish(between if number % SAME_CALLS == SAME_CALLS - 1 else call("make"))
    assert not world.of(Hold)


def test_calls_of_subagents_are_counted_separately(tmp_path: Path) -> None:
    world = watched(tmp_path)
    for number in range(SAME_CALLS):
        world.bus.publish(call("make", f"agent-{number % 2}"))
    assert not world.of(Hold)


def test_silence_during_work_is_only_escalated_and_only_once(tmp_path: Path) -> None:
    world = watched(tmp_path)
    world.bus.publish(StateChanged("ready", "working"))
    world.clock.passes(SILENCE / 2)
    world.last = world.clock.now()
    world.clock.passes(SILENCE - 1)
    assert not world.of(Escalate)
    world.clock.passes(1)
    (escalation,) = world.of(Escalate)
    assert escalation.what == "Alice has been working for 15 min without output."
    world.clock.passes(1e6)
    assert [type(each) for each in world.seen] == [StateChanged, Escalate]


def test_an_agent_at_its_prompt_and_a_line_program_may_be_silent(tmp_path: Path) -> None:
    world = watched(tmp_path)
    world.bus.publish(StateChanged("ready", "working"))
    world.bus.publish(StateChanged("working", "ready"))
    world.clock.passes(1e6)
    server = watched(tmp_path, draws=False)
    server.bus.publish(StateChanged("ready", "working"))
    server.clock.passes(1e6)
    assert not world.of(Escalate) and not server.of(Escalate)


# The ends of turns.


def outcomes(folder: Path, *, known: bool = True) -> World:
    world = World(folder)
    world.bus.add(TurnOutcome(world.bus, known=known, clock=world.clock))
    return world


@pytest.mark.parametrize(
    ("events", "well"),
    [
        ([StateChanged("working", "ready")], True),
        ([StateChanged("working", "failed")], False),
        ([StateChanged("working", "ready"), Incident("error", "network")], False),
        ([Incident("error", "network"), StateChanged("working", "ready")], False),
        ([Incident("idle"), StateChanged("working", "ready")], True),
    ],
)
def test_a_turn_ends_once_its_state_has_settled(tmp_path: Path, events: list[Any], well: bool) -> None:
    world = outcomes(tmp_path)
    for event in (StateChanged("starting", "ready"), TurnBegan(), StateChanged("ready", "working"), *events):
        world.bus.publish(event)
    world.clock.passes(SETTLES / 2)
    assert not world.of(TurnOver)
    world.clock.passes(SETTLES)
    assert world.of(TurnOver) == [TurnOver(well)]
    world.bus.publish(StateChanged("ready", "prompting"))
    world.bus.publish(StateChanged("prompting", "ready"))
    world.clock.passes(10)
    assert len(world.of(TurnOver)) == 1


@pytest.mark.parametrize("known", [True, False])
def test_a_program_that_shows_no_work_still_has_turns(tmp_path: Path, known: bool) -> None:
    world = outcomes(tmp_path, known=known)
    judged = StateJudged(Verdict(Readiness.READY, "it is waiting to read its terminal"))
    for event in (judged, OTHER, judged, judged):
        world.bus.publish(event)
    world.clock.passes(SETTLES)
    assert world.of(TurnOver) == ([] if known else [TurnOver(well=True)])


# Idle time.


class Ready(World):
    """An agent in a state that the test sets."""

    def __init__(self, folder: Path, seconds: float = 60.0) -> None:
        super().__init__(folder)
        self.state, self.occupied = "ready", ""
        grace = IdleGrace(self.bus, self.tasks, cast(AgentState, self), seconds, clock=self.clock)
        self.bus.add(grace)
        self.bus.add(self)
        self.bus.publish(SessionBegan())

    def look(self) -> str:
        return self.state

    @answers(Occupied)
    async def is_occupied(self, _: Occupied, __: object) -> str | None:
        return self.occupied or None

    @property
    def idles(self) -> int:
        return len(self.new(Incident))


def test_an_agent_is_idle_after_its_grace_period(tmp_path: Path) -> None:
    world = Ready(tmp_path)
    world.clock.passes(59)
    assert world.idles == 0
    world.clock.passes(1)
    assert world.idles == 1
    world.clock.passes(60)
    assert world.idles == 1  # once more


@pytest.mark.parametrize(
    "event",
    [USER, OTHER, StateChanged("ready", "working"), KeysTyped(b"x", 0)],
    ids=lambda e: type(e).__name__,
)
def test_any_activity_restarts_the_grace_period(tmp_path: Path, event: Any) -> None:
    world = Ready(tmp_path)
    world.clock.passes(59)
    world.bus.publish(event)
    world.clock.passes(59)
    assert world.idles == 0
    world.clock.passes(1)
    assert world.idles == 1


def test_an_agent_that_works_has_a_draft_or_has_exited_is_not_idle(tmp_path: Path) -> None:
    world = Ready(tmp_path)
    for change in (
        {"state": "working"},
        {"occupied": "you have a half-typed line in it"},
    ):
        before = {name: getattr(world, name) for name in change}
        vars(world).update(change)
        world.clock.passes(600)
        assert world.idles == 0, change
        vars(world).update(before)
    world.clock.passes(60)
    assert world.idles == 1
    world.bus.publish(AgentExited(0))
    world.clock.passes(1e5)
    assert world.idles == 0


# Idle handlers.


def limited(folder: Path, most: int = 3) -> World:
    world = World(folder)
    world.bus.add(IdleWatch(world.bus, world.terminal, 30.0, most=most))
    return world


def idles(world: World, times: int, **more: Any) -> int:
    """Let a handler answer `times` idle periods with two texts each; return how many were not dropped."""
    for _ in range(times):
        world.bus.publish(Idle(30.0))
        for _ in range(2):
            fields = {"event": "idle", **more}
            world.bus.publish(Inject(Injection(nudge("").id, "on?", "nudge (on idle)", "hook", **fields)))
    return (len(world.new(Inject)) - len(world.new(Withdraw))) // 2


def test_idle_handlers_may_inject_only_a_few_times_in_a_row(tmp_path: Path) -> None:
    world = limited(tmp_path)
    assert idles(world, 10) == 3
    assert len(world.of(Notify)) == 1
    assert asyncio.run(world.bus.ask(Describe(brief=False))) == [{"idle_dropped": 14}]
    for event in (OTHER, TurnBegan(), MessageGiven(message(), begins=False)):
        world.bus.publish(event)
    assert idles(world, 10) == 0
    world.bus.publish(MessageGiven(message(), begins=True))
    assert idles(world, 2) == 2
    world.bus.publish(USER)
    assert idles(world, 10) == 3
    assert len(world.of(Notify)) == 2


def test_an_idle_handler_that_injects_late_is_limited_too(tmp_path: Path) -> None:
    assert idles(limited(tmp_path), 10, event="") == 3


def test_injections_from_elsewhere_are_not_limited(tmp_path: Path) -> None:
    world = limited(tmp_path, most=0)
    for kind, source, event in (
        ("message", "Bob (on idle)", ""), ("hook", "ruff", "PostToolUse"), ("notice", "relay", ""),
    ):  # fmt: skip
        world.bus.publish(Inject(Injection("i", "text", source, kind, event=event)))  # type: ignore[arg-type]
    assert not world.of(Withdraw)
