"""What the agent and the person are given: texts of handlers and rules, and relay's own.

HookResult ─┬→ Injection ─→ Injector      what is injected
            └→ person                     what is for them alone
"""

from __future__ import annotations

import secrets
import time

from relay.hooks.result import HookResult
from relay.injection.injection import Injection, Kind
from relay.injection.queue import Injector
from relay.session.auditing import TellPerson


class Giving:
    """Gives texts to the agent behind `injector`, and to its person."""

    def __init__(self, injector: Injector, tell_person: TellPerson) -> None:
        self._injector = injector
        self._tell_person = tell_person

    def give(self, text: str, source: str, kind: Kind, *, wakes: bool = True) -> Injection:
        """Queue `text` for the agent."""
        return self._submit(Injection(secrets.token_hex(8), text, source, kind, wakes, time=time.time()))

    def notice(self, text: str, *, wakes: bool = True) -> Injection:
        """Queue a text of relay's own for the agent."""
        return self.give(text, "relay", "notice", wakes=wakes)

    def apply(self, result: HookResult, source: str = "", *, event: str = "", place: str = "") -> None:
        """Do what a handler or a rule answered to `event`.

        The agent knows the answer by `source`, else by the handler's name; `place`: a rule's file and line.
        """
        self.show(result)
        self.inject(result, source, event=event, place=place)

    def show(self, result: HookResult) -> None:
        """Tell the person what `result` has for them, if anything."""
        if result.user_message is not None:
            self._tell_person(result.user_message, level=result.user_message_level, source=result.source)

    def inject(
        self,
        result: HookResult,
        source: str = "",
        *,
        event: str = "",
        place: str = "",
        wakes: bool | None = None,
    ) -> None:
        """Queue the text of `result`, if it has one; as in `apply`. wakes: in place of its own word."""
        if injection := self.injection(result, source, event=event, place=place, wakes=wakes):
            self._submit(injection)

    def injection(
        self,
        result: HookResult,
        source: str = "",
        *,
        event: str = "",
        place: str = "",
        wakes: bool | None = None,
    ) -> Injection | None:
        """The text of `result`, as `inject` queues it; None where it has none."""
        if result.context_injection is None:
            return None
        return Injection(
            id=secrets.token_hex(8),
            text=result.context_injection,
            source=source or result.source,
            kind="hook",
            wakes=result.wake if wakes is None else wakes,
            event=event,
            role=result.context_injection_role,
            place=place,
            quiet=result.suppress_output,
            time=time.time(),
            remark=result.user_message or "",
        )

    def _submit(self, injection: Injection) -> Injection:
        self._injector.submit(injection)
        return injection
