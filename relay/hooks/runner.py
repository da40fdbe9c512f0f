"""The runner: calls the handlers of a directive or an event, and survives their failures.

    session's loop ── fire, dispatch ─┬→ built-in: here (async) or on a worker thread (plain)
                                      └→ the user's: on a loop thread (async) or a worker thread (plain)

A handler that raises, hangs, blocks its thread, prints, calls sys.exit or returns nonsense is reported once
per kind and place; the next handler runs, and the session continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from relay import names
from relay.agents.hook_guards import GUARDED
from relay.dataclass import dataclass, replace
from relay.directives.directive import Directive
from relay.errors import RelayError
from relay.eventbus import EventBus
from relay.hooks import prints
from relay.hooks.binding import is_async
from relay.hooks.commands import HandlerPrinted, HandlerProblem, Problem, ProblemKind
from relay.hooks.context import Context, HandlerCall
from relay.hooks.events import HandlerEvent
from relay.hooks.registry import Handler, Registry
from relay.hooks.result import HookResult, result_of
from relay.hooks.threads import Abandoned, Call, Finished, LoopThread, WorkerPool
from relay.place import Place
from relay.text import one_line

FAILED = (
    "A handler that may forbid this has failed, so relay denies it: {} Tell the user, who can mend it and "
    "run `relay reload`."
)
"""The reason of a denial that no handler has decided."""

_TIMEOUT = 30.0  # seconds that a user's handler may take

_Place = tuple[Path | None, int | None]
_GRACE = 1.0  # seconds within which an event loop that is not blocked iterates at least once


@dataclass(frozen=True, slots=True)
class DirectiveOutcome:
    """The outcome of a directive.

    results: one for each handler and each text that it injected, in firing order; `source` names the handler.
    errors:  for the agent that wrote the directive.
    """

    results: tuple[HookResult, ...] = ()
    errors: tuple[str, ...] = ()


class Runner:
    """Runs the handlers of one session. Call its methods on the session's event loop.

    It publishes each problem of a handler once (HandlerProblem), and what handlers print (HandlerPrinted).

    timeout: seconds for one call of a user's handler.
    """

    def __init__(self, registry: Registry, bus: EventBus, *, timeout: float = _TIMEOUT) -> None:
        self.registry = registry
        self._bus = bus
        self._timeout = timeout
        self._reported: set[tuple[str, ProblemKind, object]] = set()
        self._stuck: dict[Handler, Call] = {}
        self._workers = WorkerPool()
        self._loop_thread: LoopThread | None = None

    async def fire(self, event: HandlerEvent, ctx: Context) -> list[HookResult]:
        """Call the handlers of `event` one after another until one stops the others.

        A handler that fails denies what it may guard: a tool call, a prompt.
        """
        values = {"event": event, **{name: getattr(event, name) for name in event.field_names()}}
        results: list[HookResult] = []
        for handler in self.registry.for_event(event):
            answers, error = await self._answer(handler, values, ctx)
            results += answers
            if error is not None and event.name in GUARDED:
                results.append(HookResult("deny", reason=FAILED.format(error), source=handler.name))
            if any(answer.stop for answer in answers):
                break
        return results

    async def dispatch(self, directive: Directive, ctx: Context) -> DirectiveOutcome:
        """Call the handlers of `directive` one after another until one stops the others."""
        said = f"@{directive.namespace}:{directive.target}"
        handlers = self.registry.for_directive(directive)
        if not handlers:
            targets = self.registry.targets(directive.namespace)
            hint = names.did_you_mean(directive.target, targets, f"@{directive.namespace}:{{}}")
            known = ", ".join(targets) or "none"
            what = f"{said} was ignored: nothing handles this target. {hint}Targets: {known}."
            return DirectiveOutcome(errors=(what,))
        values = {"target": directive.target, "message": directive.body}
        results: list[HookResult] = []
        errors: list[str] = []
        if directive.unclosed:
            errors.append(
                f"{said}: there was no >>> line after the <<< block; relay ended it at your next directive, "
                "or at the end of your turn."
            )
        for handler in handlers:
            if handler.body and not directive.body.strip():
                errors.append(
                    f"{said} was ignored: it needs a text after it, on the same line or in <<< ... >>>."
                )
                continue
            answers, error = await self._answer(handler, values, ctx, directive.place)
            results += answers
            if error is not None:
                errors.append(f"{said}: {error}")
            if any(answer.stop for answer in answers):
                break
        return DirectiveOutcome(tuple(results), tuple(dict.fromkeys(errors)))

    def close(self) -> None:
        """End the idle threads; a busy one ends with its call or with the process."""
        self._workers.close()
        if self._loop_thread is not None:
            self._loop_thread.close()
            self._loop_thread = None

    async def _answer(
        self, handler: Handler, values: Mapping[str, Any], ctx: Context, place: Place | None = None
    ) -> tuple[list[HookResult], str | None]:
        """Call `handler`. Return its injections and its result, and the text for the sender if it failed."""
        call = HandlerCall(handler.name, place)
        args, kwargs = handler.binding.arguments({**values, "ctx": ctx.for_call(call)})
        function = partial(handler.function, *args, **kwargs)
        if handler.builtin:
            finished = await self._run_builtin(handler, function)
        else:
            finished = await self._run_user(handler, function)
        injected = [HookResult.inject(text, source=handler.name) for text in call.close()]
        if finished.error is not None:
            return injected, self._failed(handler, finished.error)
        try:
            return [*injected, replace(result_of(finished.value), source=handler.name)], None
        except (ValueError, TypeError) as error:
            self._problem(handler, "bad_result", str(error), handler.place)
            return injected, f"its handler returned something invalid: {error}"

    async def _run_builtin(self, handler: Handler, function: Callable[[], Any]) -> Finished:
        """Call a built-in handler, without a time limit: it may have to wait for a disk or a process."""
        if not is_async(handler.function):
            return await asyncio.wrap_future(self._workers.submit(function, contextvars.copy_context()).done)
        try:
            return Finished(await function())
        except Exception as error:  # noqa: BLE001 (the caller reports it)
            return Finished(error=error)

    async def _run_user(self, handler: Handler, function: Callable[[], Any]) -> Finished:
        if (stuck := self._stuck.get(handler)) is not None:
            if stuck.thread is not None and stuck.thread.is_alive():
                return Finished(error=RelayError("the handler is still busy with an earlier call."))
            del self._stuck[handler]
        prints.capture()
        printed = prints.Printed()
        context = contextvars.copy_context()
        context.run(prints.printed.set, printed)
        if is_async(handler.function):
            finished = await self._on_loop(handler, function, context)
        else:
            finished = await self._on_worker(handler, function, context)
            if asyncio.iscoroutine(finished.value):  # a plain function that returns a coroutine
                coroutine = finished.value
                finished = await self._on_loop(handler, lambda: coroutine, context)
        if text := printed.take():
            what = f"printed {one_line(text, 60)!r}; handler output goes to the journal (relay events)"
            self._problem(handler, "printed", what, handler.place, once="printed")
            self._bus.publish(HandlerPrinted(handler.name, text))
        return finished

    async def _on_worker(
        self, handler: Handler, function: Callable[[], Any], context: contextvars.Context
    ) -> Finished:
        call = self._workers.submit(function, context)
        if await self._done(call, self._timeout) or not call.abandon():
            return call.done.result()
        self._stuck[handler] = call
        return Finished(error=_TimedOut("timed_out", _stopped_at(call, handler)))

    async def _on_loop(
        self, handler: Handler, function: Callable[[], Any], context: contextvars.Context
    ) -> Finished:
        if self._loop_thread is None:
            session = asyncio.get_running_loop()

            def stray(error: BaseException) -> None:
                with contextlib.suppress(RuntimeError):  # the session's loop has closed meanwhile
                    session.call_soon_threadsafe(self._left_behind, error)

            self._loop_thread = LoopThread(stray)
        call = self._loop_thread.submit(function, context)
        while not await self._done(call, self._timeout):
            thread = call.owner
            assert thread is not None
            turned = thread.cancel(call)
            await asyncio.wait({asyncio.wrap_future(turned)}, timeout=_GRACE)
            if turned.done():
                call.finish(Finished(error=Abandoned()))
                return Finished(error=_TimedOut("timed_out", handler.place))
            turned.cancel()
            if self._loop_thread is thread:  # otherwise, another call has just abandoned it
                self._loop_thread = thread.abandon()
        if call.owner is not None and call.owner.culprit is call:
            self._stuck[handler] = call
            return Finished(error=_TimedOut("blocked", _stopped_at(call, handler)))
        return call.done.result()

    @staticmethod
    async def _done(call: Call, timeout: float) -> bool:
        done, _ = await asyncio.wait({asyncio.wrap_future(call.done)}, timeout=timeout)
        return bool(done)

    def _failed(self, handler: Handler, error: BaseException) -> str:
        """Report `error` if it is a fault; return the text for the sender."""
        match error:
            case RelayError():
                return str(error)  # an answer, not a fault
            case _TimedOut():
                what = f"did not finish within {self._timeout:g} s and was abandoned"
                if error.kind == "blocked":
                    what = (
                        f"blocked the event loop for {self._timeout:g} s and was abandoned; use 'await' for "
                        "anything that waits, or make it a plain 'def', which gets its own thread"
                    )
                self._problem(handler, error.kind, what, error.place)
                return f"its handler did not answer within {self._timeout:g} s."
            case Abandoned():
                what = "was cancelled, because another handler blocked their shared event loop"
                self._problem(handler, "blocked", what, handler.place)
                return "its handler was cancelled."
            case SystemExit():
                what = f"called sys.exit({'' if error.code is None else error.code!r}); return instead"
                self._problem(handler, "exited", what, _place(error, handler))
                return "its handler tried to exit."
            case _:
                text = one_line(str(error), 200)
                what = f"raised {type(error).__name__}" + (f": {text}" if text else "")
                self._problem(handler, "raised", what, _place(error, handler), once=type(error))
                return f"its handler failed: {type(error).__name__}" + (f": {text}" if text else "")

    def _left_behind(self, error: BaseException) -> None:
        """Report `error`, which came from a task that a handler started and never awaited."""
        frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        path, line = (Path(frames[-1][0]), frames[-1][1]) if frames else (None, None)
        what = f"left a task behind, which raised {type(error).__name__}: {one_line(str(error), 200)}"
        self._report_once(Problem("of some event", "raised", what, path, line), (type(error), path, line))

    def _problem(
        self, handler: Handler, kind: ProblemKind, what: str, place: _Place, *, once: object = None
    ) -> None:
        self._report_once(Problem(handler.name, kind, what, *place), place[1] if once is None else once)

    def _report_once(self, problem: Problem, what: object) -> None:
        identity = (problem.handler, problem.kind, what)
        if identity not in self._reported:
            self._reported.add(identity)
            self._bus.publish(HandlerProblem(problem))


class _TimedOut(Exception):
    def __init__(self, kind: ProblemKind, place: _Place) -> None:
        self.kind, self.place = kind, place


def _stopped_at(call: Call, handler: Handler) -> _Place:
    """Return the line of the handler's own file where `call` was abandoned, else the handler's first."""
    path, line = handler.place
    return path, (call.line_in(path) if path else None) or line


def _place(error: BaseException, handler: Handler) -> _Place:
    """Return the line of the handler's own file from which `error` came, else the handler's first."""
    path, line = handler.place
    lines = [
        number
        for frame, number in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == str(path)
    ]
    return path, lines[-1] if lines else line
