"""The state of an agent by the word of its own hooks.

    prompt_submit → working ─ tool_pre, tool_post ─→ working ─ stop → ready | stop_failure → failed
                        └ ExitPlanMode, AskUserQuestion, permission → prompting, until that tool has ended

A hook's word is a lease: an Esc fires nothing, and after an approval nothing fires until the tool has ended.
How long it holds against what the screen shows, relay.state.readiness says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Literal

from relay.agents.hook_event import NativeEvent, prompt_kind
from relay.agents.profile import PromptKind
from relay.state.evidence import Evidence
from relay.text import one_line

NOTIFICATION = "notification"
"""The key of a dialog of which only a notification tells."""


class HookState:
    """What the agent's hooks say that it does. Times are those of `clock`, in seconds.

    alive: events come in this run; until then, and after a whole turn without one, the screen alone counts.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.alive = False
        self._last = 0.0  # when an event came last
        self._clock = clock
        self._asking: dict[str, tuple[PromptKind, str, float]] = {}  # with the time at which it was reported
        self._state: Literal["working", "ready", "failed"] | None = None
        self._detail = ""
        self._since = clock()

    def revive(self) -> bool:
        """Note that an event has come; return True if they were not alive before."""
        self._last = self._clock()
        before, self.alive = self.alive, True
        return not before

    def lapse(self, began: float) -> bool:
        """Note that a whole turn is over that began then; return True if no event came in it, and so none counts.

        began: seconds of the monotonic clock.
        """
        if not self.alive or self._last >= began:
            return False
        self.alive = False
        return True

    def evidence(self) -> Evidence | None:
        """Return what the agent does; None where its hooks have not said."""
        now = self._clock()
        if self._asking:
            kind, detail, since = next(reversed(self._asking.values()))
            return Evidence("hooks", "prompting", kind, detail, now - since)
        if self._state is None:
            return None
        return Evidence("hooks", self._state, None, self._detail, now - self._since)

    def works(self) -> None:
        """The agent works on its turn."""
        self._set("working")

    def stands(self, error: str | None = None) -> None:
        """The turn has ended; with an `error`, because the model failed."""
        self._asking.clear()
        self._set("ready" if error is None else "failed", error or "")

    def begins(self) -> None:
        """A prompt was submitted, or the agent goes on: nothing is asked any more."""
        self._asking.clear()
        self._set("working")

    def forget(self) -> None:
        """The agent's own session begins or ends."""
        self._asking.clear()
        self._state = None

    def asks(self, event: NativeEvent, kind: PromptKind) -> None:
        """The call of a tool that `event` tells of waits for the user."""
        key = _key(event)
        if key not in self._asking or kind is not PromptKind.PERMISSION:  # else another event said more
            self._ask(key, kind, event.tool_name)

    def notified(self, kind: PromptKind, message: str) -> None:
        """A notification says that a dialog is open."""
        if not self._asking:
            self._ask(NOTIFICATION, kind, message)

    def allowed(self, event: NativeEvent) -> None:
        """The user need not be asked about the call that `event` tells of."""
        self._asking.pop(_key(event), None)

    def answered(self, event: NativeEvent) -> None:
        """The tool that `event` tells of has ended, and with it whatever it asked."""
        self._asking.pop(_key(event), None)
        self._asking.pop(NOTIFICATION, None)

    def _ask(self, key: str, kind: PromptKind, detail: str) -> None:
        self._asking[key] = (kind, one_line(detail, 200), self._clock())

    def _set(self, state: Literal["working", "ready", "failed"], detail: str = "") -> None:
        self._state, self._detail, self._since = state, one_line(detail, 200), self._clock()


class ToolPermissions:
    """Which calls of tools rules have allowed, or left to the user, until they are made."""

    def __init__(self) -> None:
        self._allowed: set[str] = set()
        self._reserved: set[str] = set()

    def allow(self, event: NativeEvent) -> None:
        """Ask nobody about the call that `event` tells of."""
        self._allowed.add(_call(event))

    def allows(self, event: NativeEvent) -> bool:
        """Return True if a call that needs permission was allowed and has not been made yet."""
        return _call(event) in self._allowed

    def reserve(self, event: NativeEvent) -> None:
        """Leave the permission for the call that `event` tells of to the user."""
        self._reserved.add(_call(event))

    def reserves(self, event: NativeEvent) -> bool:
        """Return True if the permission for a call is the user's to give."""
        return _call(event) in self._reserved

    def forget(self, event: NativeEvent) -> None:
        """Forget an equal call: what was said of it does not hold for a new one."""
        self._allowed.discard(_call(event))
        self._reserved.discard(_call(event))

    def new_prompt(self, *, joins: bool) -> None:
        """Forget what was allowed; and unless the prompt joins a turn, what was reserved."""
        self._allowed.clear()
        if not joins:
            self._reserved.clear()


def _call(event: NativeEvent) -> str:
    """A call of a tool by what it does: Codex says what for with the request for permission only."""
    doing = {name: value for name, value in event.tool_input.items() if name != "description"}
    return f"{event.tool_name} {json.dumps(doing, sort_keys=True, default=str)}"


def _key(event: NativeEvent) -> str:
    """Which call of a tool `event` is about; a request for permission does not give its id."""
    if prompt_kind(event.tool_name) is not None:
        return event.tool_name  # one at a time, and the answers are among the input afterwards
    return f"{event.tool_name} {json.dumps(event.tool_input, sort_keys=True, default=str)}"
