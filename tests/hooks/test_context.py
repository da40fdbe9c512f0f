"""The context that a handler receives: its data, and what it can do."""

import asyncio
import threading
from pathlib import Path

import pytest

from hooks.rig import Rig, texts
from relay.errors import UnknownRecipient
from relay.hooks.commands import Member
from relay.hooks.context import MAX_OUTPUT
from relay.hooks.events import Output, SessionStart


def test_the_context_describes_the_agent_and_its_session(rig: Rig, tmp_path: Path):
    """R60"""
    seen = {}

    def handler(ctx):
        names = ["agent_id", "agent_name", "session_id", "working_dir", "env", "task", "output", "messages"]
        seen.update({name: getattr(ctx, name) for name in names})

    rig.registry.add_event("session_start", handler)
    rig.fire(SessionStart())
    assert seen == {
        "agent_id": "alice-1",
        "agent_name": "Alice",
        "session_id": "session-1",
        "working_dir": tmp_path,
        "env": {"LANG": "C"},
        "task": "tidy up",
        "output": [],
        "messages": [],
    }


def test_the_output_in_the_context_is_a_bounded_copy(rig: Rig):
    """R60"""
    copies = []
    rig.registry.add_event("output", lambda ctx: copies.append(ctx.output))

    async def scene(runner, ctx, services):
        lines = rig.history.output
        lines.extend(map(str, range(MAX_OUTPUT + 5)))
        await runner.fire(Output("x"), ctx)
        lines.append("later")

    rig.run(scene)
    assert len(copies[0]) == MAX_OUTPUT
    assert copies[0][0] == "5"
    assert copies[0][-1] == str(MAX_OUTPUT + 4)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_handler_can_send_and_notify(rig: Rig, kind):
    """R61"""

    def act(ctx):
        ctx.send("Bob", "hello")
        ctx.notify("errors", "one")
        ctx.notify("#errors", "two")

    async def act_async(ctx):
        act(ctx)

    rig.registry.add_event("session_start", act if kind == "sync" else act_async)

    async def scene(runner, ctx, services):
        await runner.fire(SessionStart(), ctx)
        await services.until(lambda: len(services.sent) == 3)

    services = rig.run(scene)
    assert services.messages == [("Bob", "hello"), ("#errors", "one"), ("#errors", "two")]


def test_a_message_that_cannot_be_sent_is_reported_with_the_handlers_name(rig: Rig):
    """R61"""

    def act(ctx):
        ctx.send("Bbo", "hello")

    rig.registry.add_event("session_start", act)

    async def scene(runner, ctx, services):
        await runner.fire(SessionStart(), ctx)
        await services.until(lambda: bool(services.problems))

    (problem,) = rig.run(scene).problems
    assert problem.kind == "not_sent"
    assert "the handler act (on session_start) could not send a message to 'Bbo': nobody" in str(problem)


def test_the_relay_service_returns_the_outcome(rig: Rig):
    """R62"""
    seen = []

    async def act(ctx):
        seen.append([message.to for message in await ctx.relay.send("Bob", "hello")])
        seen.append([message.to for message in await ctx.relay.broadcast("all")])
        seen.append([(member.name, member.online) for member in await ctx.relay.roster()])
        seen.append([await ctx.relay.member("Carol"), await ctx.relay.member("Nobody")])
        try:
            await ctx.relay.send("Bbo", "hello")
        except UnknownRecipient as error:
            seen.append(error.suggestion)

    rig.registry.add_event("session_start", act)
    _, services = rig.fire(SessionStart())
    assert seen == [
        ["Bob"],
        ["Bob", "Carol"],
        [("Bob", True), ("Carol", False)],
        [Member("Carol", False), None],
        "Bob",
    ]
    assert services.problems == []


def test_a_message_may_have_a_thread_a_priority_and_an_expiry(rig: Rig):
    seen = []

    async def act(ctx):
        sent = await ctx.relay.send("Bob", "hello", wait=3, reply_to="id", thread="work", priority="urgent")
        seen.extend((message.state, message.detail) for message in sent)
        try:
            await ctx.relay.send("Bob", "hello", priority="soon")
        except ValueError as error:
            seen.append(str(error))
        for mistake in ({"reply_to": 3}, {"thread": 1}, {"expires": "5m"}):
            try:
                ctx.send("Bob", "never sent", **mistake)
            except TypeError as error:
                seen.append(str(error).partition(" must be ")[0])
        ctx.send("Bob", "later", priority="low", expires=60.0)

    rig.registry.add_event("session_start", act)

    async def scene(runner, ctx, services):
        await runner.fire(SessionStart(), ctx)
        await services.until(lambda: len(services.sent) == 2)

    services = rig.run(scene)
    assert seen == [
        ("injected", "3"),
        "priority must be 'urgent', 'normal' or 'low', not 'soon'",
        *("reply_to (the id of a message)", "thread", "expires"),
    ]
    first, second = services.sent
    assert (first.thread, first.reply_to, first.priority, first.ttl) == ("work", "id", "urgent", None)
    assert (second.thread, second.reply_to, second.priority, second.ttl) == (None, None, "low", 60.0)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_handler_can_use_the_memory(rig: Rig, kind):
    """R62, R63: from a plain handler's thread and from a coroutine's."""
    seen = []

    def act(ctx):
        saved = ctx.memory.save("the tests need a broker")
        ctx.memory.add("everybody likes tea", shared=True)
        seen.append([memory.text for memory in ctx.memory.search("broker")])
        seen.append([memory.text for memory in ctx.memory.list()])
        seen.append(ctx.memory.forget(saved.id))
        seen.append(ctx.memory.delete(saved.id))

    async def act_async(ctx):
        act(ctx)

    rig.registry.add_event("session_start", act if kind == "sync" else act_async)
    _, services = rig.fire(SessionStart())
    assert services.problems == []
    everything = ["everybody likes tea", "the tests need a broker"]
    assert seen == [["the tests need a broker"], everything, True, False]


def test_a_late_injection_reaches_the_session(rig: Rig):
    """R61: from a thread or task that outlives the handler."""
    go = threading.Event()

    def handler(ctx):
        ctx.inject("now")

        def later():
            go.wait()
            ctx.inject("later")

        threading.Thread(target=later, daemon=True).start()

    rig.registry.add_event("session_start", handler)

    async def scene(runner, ctx, services):
        results = await runner.fire(SessionStart(), ctx)
        assert texts(results) == ["now"]
        assert services.inserted == []
        go.set()
        await services.until(lambda: bool(services.inserted))

    assert rig.run(scene).inserted == [("later", "handler (on session_start)")]


@pytest.mark.parametrize(
    "act",
    [
        lambda ctx: ctx.inject(7),
        lambda ctx: ctx.send("Bob", None),
        lambda ctx: ctx.notify(None, "text"),
    ],
)
def test_an_invalid_argument_is_reported_as_the_handlers_error(rig: Rig, act):
    rig.registry.add_event("session_start", act)
    _, services = rig.fire(SessionStart())
    (problem,) = services.problems
    assert "raised TypeError" in problem.what
    assert "must be a string, not" in problem.what


def test_injections_of_concurrent_handlers_are_kept_apart(rig: Rig):
    async def first(ctx):
        ctx.inject("a1")
        await asyncio.sleep(0)
        ctx.inject("a2")

    async def second(ctx):
        ctx.inject("b1")
        await asyncio.sleep(0)
        ctx.inject("b2")

    rig.registry.add_event("output", first)
    rig.registry.add_event("session_start", second)

    async def scene(runner, ctx, services):
        a, b = await asyncio.gather(runner.fire(Output("x"), ctx), runner.fire(SessionStart(), ctx))
        assert (texts(a), texts(b)) == (["a1", "a2"], ["b1", "b2"])

    rig.run(scene)
