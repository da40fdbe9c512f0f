"""Carries out results: texts for the agent, and lines for the user."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable

from relay.eventbus import EventBus
from relay.hooks.result import HookResult
from relay.injection.events import Inject
from relay.injection.injection import Injection
from relay.terminal.events import Notify


def notify(bus: EventBus, results: Iterable[HookResult]) -> None:
    """Show the user the messages in `results`."""
    for result in results:
        if result.user_message is not None:
            bus.publish(Notify(result.user_message, result.user_message_level, result.source))


def apply(
    bus: EventBus,
    results: Iterable[HookResult],
    *,
    event: str = "",
    source: str = "",
    wakes: bool | None = None,
) -> None:
    """Give the agent the texts of `results`, in order, as answers to `event`.

    source: the name under which the agent gets the answer; "" for that of its handler or rule.
    wakes:  True if a text is worth its own turn, False if not; None: as the result says.
    """
    for injection in injections(results, event=event, source=source, wakes=wakes):
        bus.publish(Inject(injection))


def injections(
    results: Iterable[HookResult], *, event: str = "", source: str = "", wakes: bool | None = None
) -> list[Injection]:
    """Return the texts of `results` as injections, as `apply` gives them."""
    return [
        Injection(
            id=secrets.token_hex(8),
            text=result.context_injection,
            source=source or result.source,
            kind="hook",
            wakes=result.wake if wakes is None else wakes,
            event=result.event or event,
            role=result.context_injection_role,
            place=result.place,
            quiet=result.suppress_output,
            time=time.time(),
            remark=result.user_message or "",
        )
        for result in results
        if result.context_injection is not None
    ]
