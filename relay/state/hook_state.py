"""The state of an agent as its own hooks report it.

    prompt_submit → working ─ tool_pre, tool_post ─→ working ─ stop → ready | stop_failure → failed
                        └ ExitPlanMode, AskUserQuestion, permission → prompting, until that tool has ended

A report is a lease: Esc fires no hook, and after an approval, none fires until the tool has ended.
relay.state.readiness defines how long a report outweighs the screen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Literal

from relay.agents import kinds
from relay.agents.hook_event import NativeEvent
from relay.agents.profile import PromptKind
from relay.state.evidence import Evidence
from relay.text import one_line

_NOTIFICATION = "notification"  # the key of a dialog that only a notification reports


class HookState:
    """The state that the agent's hooks report. Times are in seconds, on `clock`.

    alive: hooks report in this run. False before the first report and after a whole turn without one; then
           only the screen counts.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.alive = False
        self._last = 0.0  # the time of the last report
        self._clock = clock
        self._asking: dict[str, tuple[PromptKind, str, float]] = {}  # kind, detail, time of the report
        self._state: Literal["working", "ready", "failed"] | None = None
        self._detail = ""
        self._since = clock()

    def revive(self) -> bool:
        """Record a report; return True if the hooks were not alive before it."""
        self._last = self._clock()
        before, self.alive = self.alive, True
        return not before

    def lapse(self, began: float) -> bool:
        """Record the end of a turn; return True if live hooks have reported nothing since it `began`."""
        lapsed = self.alive and self._last < began
        self.alive = self.alive and not lapsed
        return lapsed

    def evidence(self) -> Evidence | None:
        """Return the agent's state; None if its hooks have not reported any."""
        now = self._clock()
        if self._asking:
            kind, detail, since = next(reversed(self._asking.values()))
            return Evidence("hooks", "prompting", kind, detail, now - since)
        if self._state is None:
            return None
        return Evidence("hooks", self._state, None, self._detail, now - self._since)

    def works(self) -> None:
        self._set("working")

    def ends(self, error: str | None = None) -> None:
        """Record that the turn has ended; with an `error` if the model failed."""
        self._asking.clear()
        self._set("ready" if error is None else "failed", error or "")

    def begins(self) -> None:
        """Record that a turn begins or continues: the agent no longer asks anything."""
        self._asking.clear()
        self.works()

    def forget(self) -> None:
        """Forget every report: the agent's own session begins or ends."""
        self._asking.clear()
        self._state = None

    def asks(self, event: NativeEvent, kind: PromptKind) -> None:
        """Record that the tool call of `event` waits for the user."""
        key = _key(event)
        if key not in self._asking or kind is not PromptKind.PERMISSION:  # else an earlier event knew more
            self._ask(key, kind, event.tool_name)

    def notified(self, kind: PromptKind, message: str) -> None:
        """Record that a notification reports an open dialog."""
        if not self._asking:
            self._ask(_NOTIFICATION, kind, message)

    def allowed(self, event: NativeEvent) -> None:
        """Record that the tool call of `event` does not wait for the user."""
        self._asking.pop(_key(event), None)

    def answered(self, event: NativeEvent) -> None:
        """Record that the tool call of `event` and any question about it have ended."""
        self._asking.pop(_key(event), None)
        self._asking.pop(_NOTIFICATION, None)

    def _ask(self, key: str, kind: PromptKind, detail: str) -> None:
        self._asking[key] = (kind, one_line(detail, 200), self._clock())

    def _set(self, state: Literal["working", "ready", "failed"], detail: str = "") -> None:
        self._state, self._detail, self._since = state, one_line(detail, 200), self._clock()


class ToolPermissions:
    """Tool calls that are allowed, or reserved for the user's decision, until they are made."""

    def __init__(self) -> None:
        self._allowed: set[str] = set()
        self._reserved: set[str] = set()

    def allow(self, event: NativeEvent) -> None:
        """Allow the tool call of `event` without asking the user."""
        self._allowed.add(_call(event))

    def allows(self, event: NativeEvent) -> bool:
        """Return True if the tool call of `event` is allowed and has not been made yet."""
        return _call(event) in self._allowed

    def reserve(self, event: NativeEvent) -> None:
        """Reserve the tool call of `event` for the user's decision."""
        self._reserved.add(_call(event))

    def reserves(self, event: NativeEvent) -> bool:
        """Return True if the user must decide about the tool call of `event`."""
        return _call(event) in self._reserved

    def forget(self, event: NativeEvent) -> None:
        """Forget the decision on an equal call: it does not apply to a new one."""
        self._allowed.discard(_call(event))
        self._reserved.discard(_call(event))

    def new_prompt(self, *, joins: bool) -> None:
        """Forget the allowed calls and, unless the prompt joins a running turn, the reserved ones."""
        self._allowed.clear()
        if not joins:
            self._reserved.clear()


def _call(event: NativeEvent) -> str:
    """Identify a tool call by its effect: Codex adds a description only when it asks for permission."""
    doing = {name: value for name, value in event.tool_input.items() if name != "description"}
    return f"{event.tool_name} {json.dumps(doing, sort_keys=True, default=str)}"


def _key(event: NativeEvent) -> str:
    """Identify a tool call by its input: a permission request does not include the call's id."""
    if kinds.find(event.agent).dialogs.get(event.tool_name) is not None:
        return event.tool_name  # one at a time; afterwards, its input includes the user's answers
    return f"{event.tool_name} {json.dumps(event.tool_input, sort_keys=True, default=str)}"
