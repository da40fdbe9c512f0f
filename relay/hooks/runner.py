"""The runner: calls the handlers of a directive or an event, and survives whatever they do.

    session's loop ── fire, dispatch ─┬→ built-in: here (async) or on a worker thread (plain)
                                      └→ the user's: on a loop thread (async) or a worker thread (plain)

A handler that raises, hangs, blocks its thread, prints, calls sys.exit or returns nonsense is reported once
per kind and place; the next handler runs, and the session goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from relay import names
from relay.directives.directive import Directive
from relay.errors import RelayError
from relay.eventbus import EventBus
from relay.hooks import prints
from relay.hooks.binding import is_async
from relay.hooks.commands import HandlerPrinted, HandlerProblem
from relay.hooks.context import Context, HandlerCall
from relay.hooks.events import HandlerEvent
from relay.hooks.problem import Problem, ProblemKind
from relay.hooks.registry import Handler, Registry
from relay.hooks.result import HookResult, result_of
from relay.hooks.threads import Abandoned, Call, Finished, LoopThread, WorkerPool
from relay.place import Place
from relay.text import one_line

TIMEOUT = 30.0
"""Seconds that a handler of the user's may take."""

_GRACE = 1.0  # seconds in which a loop that is not blocked turns at least once


@dataclass(frozen=True, slots=True)
class DirectiveOutcome:
    """The outcome of a directive.

    results: one for each handler and each text that it injected, in firing order; `source` names the handler.
    errors:  for the agent that wrote the directive.
    handled: at least one handler took it without failing.
    """

    results: tuple[HookResult, ...] = ()
    errors: tuple[str, ...] = ()
    handled: bool = False

    @property
    def injections(self) -> tuple[HookResult, ...]:
        return tuple(result for result in self.results if result.context_injection is not None)


@dataclass(frozen=True, slots=True)
class _Answer:
    results: tuple[HookResult, ...]
    error: str | None = None

    @property
    def stop(self) -> bool:
        return any(result.stop for result in self.results)


class Runner:
    """Runs the handlers of one session. Call its methods on the session's event loop.

    It publishes each new problem of a handler once (HandlerProblem), and all that one prints (HandlerPrinted).

    timeout: seconds for one call of a user's handler.
    """

    def __init__(
        self,
        registry: Registry,
        bus: EventBus,
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        self.registry = registry
        self._bus = bus
        self._timeout = timeout
        self._reported: set[tuple[str, ProblemKind, object]] = set()
        self._stuck: dict[Handler, Call] = {}
        self._workers = WorkerPool()
        self._loop_thread: LoopThread | None = None

    async def fire(self, event: HandlerEvent, ctx: Context) -> list[HookResult]:
        """Call the handlers of `event` one after another until one says stop."""
        values = {"event": event, **{name: getattr(event, name) for name in event.field_names()}}
        results: list[HookResult] = []
        for handler in self.registry.for_event(event):
            answer = await self._answer(handler, values, ctx)
            results += answer.results
            if answer.stop:
                break
        return results

    async def dispatch(self, directive: Directive, ctx: Context) -> DirectiveOutcome:
        """Call the handlers of `directive` one after another until one stops the others."""
        said = f"@{directive.namespace}:{directive.target}"
        handlers = self.registry.for_directive(directive)
        if not handlers:
            return DirectiveOutcome(errors=(self._nobody(directive, said),))
        values = {"target": directive.target, "message": directive.body}
        results: list[HookResult] = []
        errors: list[str] = []
        handled = False
        if directive.unclosed:
            errors.append(
                f"{said}: the <<< block had no >>> line; it was taken to end where your turn ended."
            )
        for handler in handlers:
            if handler.body and not directive.body.strip():
                errors.append(
                    f"{said} was ignored: it needs a text after it, on the same line or in <<< ... >>>."
                )
                continue
            answer = await self._answer(handler, values, ctx, directive.place)
            results += answer.results
            if answer.error is None:
                handled = True
            else:
                errors.append(f"{said}: {answer.error}")
            if answer.stop:
                break
        return DirectiveOutcome(tuple(results), tuple(dict.fromkeys(errors)), handled)

    def close(self) -> None:
        """End the idle threads; a busy one ends with its call or with the process."""
        self._workers.close()
        if self._loop_thread is not None:
            self._loop_thread.close()
            self._loop_thread = None

    def _nobody(self, directive: Directive, said: str) -> str:
        targets = self.registry.targets(directive.namespace)
        close = names.suggest(directive.target, targets)
        hint = f"Did you mean @{directive.namespace}:{close}? " if close else ""
        return (
            f"{said} was ignored: nothing handles this target. {hint}Targets: {', '.join(targets) or 'none'}."
        )

    async def _answer(
        self, handler: Handler, values: Mapping[str, Any], ctx: Context, place: Place | None = None
    ) -> _Answer:
        call = HandlerCall(handler.name, place)
        args, kwargs = handler.binding.arguments({**values, "ctx": ctx.for_call(call)})
        function = partial(handler.function, *args, **kwargs)
        if handler.builtin:
            finished = await self._run_builtin(handler, function)
        else:
            finished = await self._run_user(handler, function)
        injected = [HookResult.inject(text, source=handler.name) for text in call.close()]
        if finished.error is not None:
            return _Answer(tuple(injected), self._failed(handler, finished.error))
        try:
            result = replace(result_of(finished.value), source=handler.name)
        except (ValueError, TypeError) as error:
            path, line = handler.place
            self._problem(handler, "bad_result", str(error), path, line)
            return _Answer(tuple(injected), f"its handler answered nonsense: {error}")
        return _Answer((*injected, result))

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
                return Finished(error=RelayError("the handler is still stuck in an earlier call."))
            del self._stuck[handler]
        printed = prints.Printed()
        context = self._context(printed)
        if is_async(handler.function):
            finished = await self._on_loop(handler, function, context)
        else:
            finished = await self._on_worker(handler, function, context)
            if asyncio.iscoroutine(finished.value):  # a plain function that hands back a coroutine
                coroutine = finished.value
                finished = await self._on_loop(handler, lambda: coroutine, context)
        if text := printed.take():
            path, line = handler.place
            what = f"printed {one_line(text, 60)!r}; what handlers print goes to the journal (relay events)"
            self._problem(handler, "printed", what, path, line, once="printed")
            self._bus.publish(HandlerPrinted(handler.name, text))
        return finished

    @staticmethod
    def _context(printed: prints.Printed) -> contextvars.Context:
        prints.capture()
        context = contextvars.copy_context()
        context.run(prints.printed.set, printed)
        return context

    async def _on_worker(
        self, handler: Handler, function: Callable[[], Any], context: contextvars.Context
    ) -> Finished:
        call = self._workers.submit(function, context)
        if await self._done(call, self._timeout) or not call.abandon():
            return call.done.result()
        self._stuck[handler] = call
        return Finished(error=_TimedOut("timed_out", *_stopped_at(call, handler)))

    async def _on_loop(
        self, handler: Handler, function: Callable[[], Any], context: contextvars.Context
    ) -> Finished:
        if self._loop_thread is None:
            self._loop_thread = self._new_loop_thread()
        call = self._loop_thread.submit(function, context)
        while not await self._done(call, self._timeout):
            thread = call.owner
            assert thread is not None
            turned = thread.cancel(call)
            await asyncio.wait({asyncio.wrap_future(turned)}, timeout=_GRACE)
            if turned.done():
                call.finish(Finished(error=Abandoned()))
                return Finished(error=_TimedOut("timed_out", *handler.place))
            turned.cancel()
            if self._loop_thread is thread:  # else another call has just given it up
                self._loop_thread = thread.abandon()
        if call.owner is not None and call.owner.culprit is call:
            self._stuck[handler] = call
            return Finished(error=_TimedOut("blocked", *_stopped_at(call, handler)))
        return call.done.result()

    def _new_loop_thread(self) -> LoopThread:
        session = asyncio.get_running_loop()

        def stray(error: BaseException) -> None:
            with contextlib.suppress(RuntimeError):  # the session's loop has closed meanwhile
                session.call_soon_threadsafe(self._left_behind, error)

        return LoopThread(stray)

    @staticmethod
    async def _done(call: Call, timeout: float) -> bool:
        done, _ = await asyncio.wait({asyncio.wrap_future(call.done)}, timeout=timeout)
        return bool(done)

    def _failed(self, handler: Handler, error: BaseException) -> str:
        """Report `error` where it is a fault; return the text for the sender."""
        match error:
            case RelayError():
                return str(error)  # an answer, not a fault
            case _TimedOut(kind="blocked"):
                what = (
                    f"blocked the event loop for {self._timeout:g} s and was given up; use 'await' for "
                    "whatever waits, or make it a plain 'def', which gets a thread of its own"
                )
                self._problem(handler, "blocked", what, error.path, error.line)
                return f"its handler did not answer within {self._timeout:g} s."
            case _TimedOut():
                what = f"did not end within {self._timeout:g} s and was given up"
                self._problem(handler, "timed_out", what, error.path, error.line)
                return f"its handler did not answer within {self._timeout:g} s."
            case Abandoned():
                what = "was cut off, because another handler blocked the event loop that they share"
                self._problem(handler, "blocked", what, *handler.place)
                return "its handler was cut off."
            case SystemExit():
                what = f"called sys.exit({'' if error.code is None else error.code!r}); return instead"
                self._problem(handler, "exited", what, *_place(error, handler))
                return "its handler tried to exit."
            case _:
                text = one_line(str(error), 200)
                what = f"raised {type(error).__name__}" + (f": {text}" if text else "")
                self._problem(handler, "raised", what, *_place(error, handler), once=type(error))
                return f"its handler failed: {type(error).__name__}" + (f": {text}" if text else "")

    def _left_behind(self, error: BaseException) -> None:
        """Report what was raised in a task that a handler started and never awaited."""
        frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        path, line = (Path(frames[-1][0]), frames[-1][1]) if frames else (None, None)
        what = f"left a task behind, which raised {type(error).__name__}: {one_line(str(error), 200)}"
        self._report_once(Problem("of some event", "raised", what, path, line), (type(error), path, line))

    def _problem(
        self,
        handler: Handler,
        kind: ProblemKind,
        what: str,
        path: Path | None,
        line: int | None,
        *,
        once: object = None,
    ) -> None:
        self._report_once(Problem(handler.name, kind, what, path, line), line if once is None else once)

    def _report_once(self, problem: Problem, what: object) -> None:
        identity = (problem.handler, problem.kind, what)
        if identity not in self._reported:
            self._reported.add(identity)
            self._bus.publish(HandlerProblem(problem))


class _TimedOut(Exception):
    def __init__(self, kind: ProblemKind, path: Path | None, line: int | None) -> None:
        self.kind, self.path, self.line = kind, path, line


def _stopped_at(call: Call, handler: Handler) -> tuple[Path | None, int | None]:
    """Return the line of the handler's own file at which `call` was given up, else the handler's first."""
    path, line = handler.place
    return path, (call.line_in(path) if path else None) or line


def _place(error: BaseException, handler: Handler) -> tuple[Path | None, int | None]:
    """Return the line of the handler's own file from which `error` came, else the handler's first."""
    path, line = handler.place
    lines = [
        number
        for frame, number in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == str(path)
    ]
    return path, lines[-1] if lines else line
