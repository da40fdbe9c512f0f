"""The runner calls handlers, and contains their errors, output and hangs."""

import asyncio
import sys
import threading
from dataclasses import replace

import pytest

from hooks.rig import Rig, directive, texts
from relay.errors import RelayError
from relay.hooks.events import (
    HandlerEvent,
    Idle,
    MessageReceived,
    Output,
    PromptSubmit,
    SessionEnd,
    SessionStart,
    ToolPost,
    ToolPre,
)
from relay.hooks.result import HookResult

SHORT = 1.5  # seconds: the timeout of handlers that hang; enough for the others on a busy machine


def test_sync_and_async_handlers_run(rig: Rig):
    """R49, R50"""

    async def deploy(target, message, ctx):
        await asyncio.sleep(0)
        return {"inject": f"{message} to {target}"}

    rig.registry.add_pattern("deploy", deploy)
    rig.registry.add_pattern("deploy", lambda target, message, ctx: f"plain: {message} to {target}")
    outcome, services = rig.say("@deploy:staging v1.2.3")
    assert texts(outcome.results) == ["v1.2.3 to staging", "plain: v1.2.3 to staging"]
    assert [result.source for result in outcome.results] == ["deploy (@deploy)", "<lambda> (@deploy)"]
    assert outcome.errors == ()
    assert services.problems == []


def test_handlers_run_on_their_own_threads(rig: Rig):
    threads = []

    async def on_a_loop(ctx):
        threads.append(threading.current_thread())

    rig.registry.add_event("session_start", on_a_loop)
    rig.registry.add_event("session_start", lambda: threads.append(threading.current_thread()))
    rig.fire(SessionStart())
    assert len({*threads, threading.main_thread()}) == 3


def test_async_handlers_share_one_loop(rig: Rig):
    """A client opened in session_start works in a later handler."""
    loops = []

    async def remember(ctx):
        loops.append(asyncio.get_running_loop())

    rig.registry.add_event("session_start", remember)
    rig.registry.add_event("session_end", remember)

    async def scene(runner, ctx, services):
        await runner.fire(SessionStart(), ctx)
        await runner.fire(SessionEnd(), ctx)

    rig.run(scene)
    assert loops[0] is loops[1]


def test_events_reach_their_handlers_with_their_fields(rig: Rig):
    """R51, R52, R53, R55, R56"""
    seen = []
    rig.registry.add_event("onSessionStart", lambda ctx: "initial context")
    rig.registry.add_event("onOutput", lambda output, ctx: seen.append(output))
    rig.registry.add_event("onMessageReceived", lambda sender, body, ctx: seen.append((sender, body)))
    rig.registry.add_event("onIdle", lambda event, ctx: seen.append(event.seconds))
    rig.registry.add_event("onSessionEnd", lambda ctx: {"inject": "closing prompt"})
    assert texts(rig.fire(SessionStart())[0]) == ["initial context"]
    rig.fire(Output("an ERROR"))
    rig.fire(MessageReceived("Bob", "hello"))
    rig.fire(Idle(30.0))
    assert seen == ["an ERROR", ("Bob", "hello"), 30.0]
    assert texts(rig.fire(SessionEnd())[0]) == ["closing prompt"]


def test_injected_texts_come_before_the_returned_one(rig: Rig):
    """R50, R61"""

    def handler(ctx):
        ctx.inject("first")
        ctx.inject("second")
        return "third"

    rig.registry.add_pattern("deploy", handler)
    outcome, _ = rig.say("@deploy:x y")
    assert texts(outcome.results) == ["first", "second", "third"]


def test_a_hook_result_keeps_its_fields(rig: Rig):
    result = HookResult("inject_context", "text", "user", user_message="look", user_message_level="warning")
    rig.registry.add_pattern("deploy", lambda: result)
    outcome, _ = rig.say("@deploy:x y")
    assert [(r.context_injection_role, r.user_message) for r in outcome.results] == [("user", "look")]


def raises():
    raise ValueError("no such host")


async def raises_async():
    raise ValueError("no such host")


def exits():
    sys.exit(3)


async def exits_async():
    sys.exit("bye")


def returns_a_number():
    return 42


def prints():
    print("secret\x1b[2J")
    print("to stderr", file=sys.stderr)


async def prints_async():
    print("secret\x1b[2J")


def generates():
    yield "text"


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (raises, "raised", "raised ValueError: no such host"),
        (raises_async, "raised", "raised ValueError: no such host"),
        (exits, "exited", "called sys.exit(3)"),
        (exits_async, "exited", "called sys.exit('bye')"),
        (returns_a_number, "bad_result", "returned 42 (int). Return None, a string"),
        (prints, "printed", "printed 'secret␛[2J to stderr'"),
        (prints_async, "printed", "printed 'secret␛[2J'"),
        (generates, "bad_result", "(generator). Return None"),
    ],
)
def test_an_error_is_reported_once_with_its_place_and_the_next_handler_runs(rig: Rig, function, kind, text):
    rig.registry.add_event("output", function)
    rig.registry.add_event("output", lambda: "next")

    async def scene(runner, ctx, services):
        for _ in range(3):
            assert texts(await runner.fire(Output("x"), ctx)) == ["next"]

    services = rig.run(scene)
    (problem,) = services.problems
    assert problem.kind == kind
    assert text in str(problem)
    first = function.__code__.co_firstlineno
    assert problem.path.name == "test_runner.py"
    assert first <= problem.line <= first + 2
    assert str(problem).startswith(
        f"test_runner.py:{problem.line}: the handler {function.__name__} (on output) "
    )


def test_different_errors_of_a_handler_are_reported_separately(rig: Rig):
    def handler(output):
        raise {"a": ValueError, "b": KeyError}[output](output)

    rig.registry.add_event("output", handler)

    async def scene(runner, ctx, services):
        for output in "abab":
            await runner.fire(Output(output), ctx)

    assert [p.what for p in rig.run(scene).problems] == ["raised ValueError: a", "raised KeyError: 'b'"]


def test_printed_text_goes_to_the_journal_not_the_terminal(rig: Rig, capfd):
    rig.registry.add_event("output", prints)

    async def scene(runner, ctx, services):
        await runner.fire(Output("x"), ctx)
        await runner.fire(Output("x"), ctx)

    services = rig.run(scene)
    assert services.notes == [("prints (on output)", "secret\x1b[2J\nto stderr\n")] * 2
    assert capfd.readouterr() == ("", "")


def test_excessive_output_is_truncated(rig: Rig):
    def flood():
        for _ in range(100):
            print("x" * 10_000)

    rig.registry.add_event("output", flood)
    _, services = rig.fire(Output("x"))
    ((_, text),) = services.notes
    assert len(text) < 70_000
    assert text.endswith("more characters")


def hangs():
    threading.Event().wait()


def loops_forever():
    while True:
        pass


async def hangs_async():
    await asyncio.Event().wait()


async def resists_cancellation():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling() > 1:
                raise


@pytest.mark.parametrize("function", [hangs, loops_forever, hangs_async, resists_cancellation])
def test_a_handler_that_hangs_is_abandoned(rig: Rig, function):
    rig.registry.add_pattern("deploy", function)
    rig.registry.add_pattern("deploy", lambda: "next")
    outcome, services = rig.say("@deploy:x y", timeout=SHORT)
    assert texts(outcome.results) == ["next"]
    assert outcome.errors == (f"@deploy:x: its handler did not answer within {SHORT:g} s.",)
    (problem,) = services.problems
    assert problem.kind == "timed_out"
    assert f"did not finish within {SHORT:g} s" in str(problem)


async def busy_async():
    while True:
        pass


async def blocks_async():
    threading.Event().wait(5)


@pytest.mark.parametrize("function", [busy_async, blocks_async])
def test_a_coroutine_that_blocks_its_thread_is_abandoned_and_the_thread_replaced(rig: Rig, function):
    async def works():
        await asyncio.sleep(0)
        return "works"

    rig.registry.add_pattern("deploy", function)
    rig.registry.add_pattern("deploy", works)
    outcome, services = rig.say("@deploy:x y", timeout=SHORT)
    assert texts(outcome.results) == ["works"]
    (problem,) = services.problems
    assert problem.kind == "blocked"
    first = function.__code__.co_firstlineno
    assert first < problem.line <= first + 2  # where it is stuck, not where it begins


def test_a_blocked_handler_does_not_block_the_session(rig: Rig):
    release = threading.Event()

    async def blocks(ctx):
        release.wait()

    rig.registry.add_event("output", blocks)

    async def scene(runner, ctx, services):
        firing = asyncio.ensure_future(runner.fire(Output("x"), ctx))
        for _ in range(100):
            await asyncio.sleep(0)  # lets the session's loop run
        assert not firing.done()
        release.set()
        await firing

    assert rig.run(scene).problems == []


def test_coroutines_queued_behind_a_blocked_one_still_run(rig: Rig):
    async def waiting():
        return "ran"

    rig.registry.add_pattern("block", blocks_async)
    rig.registry.add_pattern("wait", waiting)

    async def scene(runner, ctx, services):
        first, second = await asyncio.gather(
            runner.dispatch(directive("@block:x y"), ctx), runner.dispatch(directive("@wait:x y"), ctx)
        )
        assert first.errors
        assert texts(second.results) == ["ran"]

    rig.run(scene, timeout=SHORT)


def test_a_handler_that_is_still_stuck_is_not_called_again(rig: Rig):
    release = threading.Event()
    calls = []

    def stuck():
        calls.append(1)
        release.wait()

    rig.registry.add_pattern("deploy", stuck)

    async def scene(runner, ctx, services):
        for _ in range(3):
            outcome = await runner.dispatch(directive("@deploy:x y"), ctx)
        assert outcome.errors == ("@deploy:x: the handler is still busy with an earlier call.",)
        release.set()

    services = rig.run(scene, timeout=SHORT)
    assert calls == [1]
    assert len(services.problems) == 1


def test_text_injected_before_a_hang_is_kept(rig: Rig):
    def handler(ctx):
        ctx.inject("starting")
        threading.Event().wait()

    rig.registry.add_pattern("deploy", handler)
    outcome, _ = rig.say("@deploy:x y", timeout=SHORT)
    assert texts(outcome.results) == ["starting"]


@pytest.mark.parametrize("error", [SystemExit(1), ValueError("oops")])
def test_a_failing_task_left_behind_is_reported(rig: Rig, error):
    async def leave(ctx):
        async def failing():
            raise error

        asyncio.get_running_loop().create_task(failing())

    async def works():
        return "works"

    rig.registry.add_event("session_start", leave)
    rig.registry.add_event("session_end", works)

    async def scene(runner, ctx, services):
        await runner.fire(SessionStart(), ctx)
        await services.until(lambda: bool(services.problems))
        assert texts(await runner.fire(SessionEnd(), ctx)) == ["works"]

    services = rig.run(scene)
    assert f"left a task behind, which raised {type(error).__name__}" in str(services.problems[0])


def test_a_directive_without_a_handler_is_answered(rig: Rig):
    rig.registry.add_pattern("deploy:prod-*", lambda: None)
    rig.registry.add_pattern("deploy:staging", lambda: None)
    outcome, _ = rig.say("@deploy:stagin now")
    assert outcome.errors == (
        "@deploy:stagin was ignored: nothing handles this target. Did you mean @deploy:staging? "
        "Targets: prod-*, staging.",
    )


def test_a_missing_text_is_reported_unless_the_handler_needs_none(rig: Rig):
    rig.registry.add_pattern("deploy", lambda: "ran")
    rig.registry.add_pattern("status", lambda message: f"ran{message}", body=False)
    outcome, _ = rig.say("@deploy:x")
    assert texts(outcome.results) == []
    assert "@deploy:x was ignored: it needs a text" in outcome.errors[0]
    outcome, _ = rig.say("@status:x")
    assert texts(outcome.results) == ["ran"]
    assert outcome.errors == ()


def test_an_unclosed_block_is_delivered_and_reported(rig: Rig):
    rig.registry.add_pattern("deploy", lambda message: message)

    async def scene(runner, ctx, services):
        unclosed = replace(directive("@deploy:x"), body="many\nlines", unclosed=True)
        outcome = await runner.dispatch(unclosed, ctx)
        assert texts(outcome.results) == ["many\nlines"]
        assert ">>>" in outcome.errors[0]

    rig.run(scene)


def test_a_relay_error_is_an_answer_not_a_problem(rig: Rig):
    def handler():
        raise RelayError("staging is frozen; try again tomorrow.")

    rig.registry.add_pattern("deploy", handler)
    outcome, services = rig.say("@deploy:x y")
    assert outcome.errors == ("@deploy:x: staging is frozen; try again tomorrow.",)
    assert services.problems == []


def test_idle_threads_are_reused(rig: Rig):
    threads = []
    rig.registry.add_event("output", lambda: threads.append(threading.current_thread()))

    async def scene(runner, ctx, services):
        for _ in range(20):
            await runner.fire(Output("x"), ctx)

    rig.run(scene)
    assert len(threads) == 20
    assert len(set(threads)) == 1


def hangs():
    threading.Event().wait()


@pytest.mark.parametrize("event", [ToolPre("Bash", {}), PromptSubmit(prompt="hi")], ids=["tool", "prompt"])
def test_a_guard_that_fails_or_is_late_denies(rig: Rig, event: HandlerEvent):
    """D2: whatever goes wrong, what it may forbid does not pass. The other handlers still run."""
    for handler in (raises, raises_async, hangs, lambda: 42, sys.exit):
        rig.registry.add_event(event.name, handler)
    rig.registry.add_event(event.name, lambda: "a text")
    results, services = rig.fire(event, timeout=SHORT)
    denied = [result.reason for result in results if result.action == "deny"]
    assert len(denied) == len(services.problems) == 5
    assert denied[0].startswith(
        "A handler that may forbid this has failed, so relay denies it: its handler fail"
    )
    assert texts(results) == ["a text"]


def test_a_handler_that_only_observes_denies_nothing_when_it_fails(rig: Rig):
    rig.registry.add_event("tool_post", raises)
    assert rig.fire(ToolPost("Bash", {}))[0] == []
