"""What an agent does by the word of its own hooks: its turn, and what it asks for meanwhile.

    prompt_submit → working ─ tool_pre, tool_post ─→ working ─ stop → ready | stop_failure → failed
                        └ ExitPlanMode, AskUserQuestion, permission → prompting, until that tool has ended

A hook's word is a lease: an Esc fires nothing, and after an approval nothing fires until the tool has ended.
How long it holds against what the screen shows, relay.state.readiness says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Literal

from relay.agents.hook_event import NativeEvent, NativeName, prompt_kind
from relay.agents.profile import PromptKind
from relay.state.evidence import Evidence
from relay.text import one_line

MAX_TEXTS = 1_000
"""Texts of one turn that are kept for agent_end's `messages`."""

_SHARED = frozenset(
    {
        NativeName.TOOL_PRE,
        NativeName.PERMISSION,
        NativeName.TOOL_POST,
        NativeName.TOOL_FAILED,
        NativeName.NOTIFICATION,
    }
)
"""Events that mean the same when a subagent's work has caused them."""

_COMPARED = 200
"""Characters by which a text that an agent goes on with is known again."""

_NOTIFIED = {"permission_prompt": PromptKind.PERMISSION, "ToolPermission": PromptKind.PERMISSION}
"""Types of notifications that say that a dialog is open (Claude Code and Qwen; Gemini)."""


class Turn:
    """The turn of one agent. Times are those of `clock`, in seconds.

    active:        a prompt was submitted, and the turn has not ended.
    on_begin:      called when a turn begins, and not when one is gone on with.
    began:         when that was.
    messages:      what was said in it: {"role": "user" or "assistant", "content": TEXT}, in order.
    continuations: how often in a row relay has had the agent go on with a turn that it had ended.
    runaway:       messages that the agent sent in it are held; until the next prompt.
    halted:        why a rule or a handler has stopped it: no tool is called any more, until the next prompt.
    """

    def __init__(self, clock: Callable[[], float], on_begin: Callable[[], None] = lambda: None) -> None:
        self.active = False
        self.on_begin = on_begin
        self.began = 0.0
        self.messages: list[dict[str, str]] = []
        self.continuations = 0
        self.runaway = False
        self.halted = ""
        self._clock = clock
        self._allowed: set[str] = set()  # calls of tools that a rule has allowed
        self._reserved: set[str] = set()  # those that a rule has left to the person
        self._continued = ""
        self._asking: dict[str, tuple[PromptKind, str, float]] = {}  # with when it was told
        self._state: Literal["working", "ready", "failed"] | None = None
        self._detail = ""
        self._since = clock()

    def take(self, event: NativeEvent) -> None:
        """Note what `event` tells. Of `stop` nothing yet: the agent may be made to go on (`end`, `go_on`)."""
        if event.agent_id and event.name not in _SHARED:
            return  # a subagent's turn is a part of this one
        match event.name:
            case NativeName.PROMPT_SUBMIT if event.prompt:
                self._begin(event.prompt)
            case NativeName.PROMPT_SUBMIT:  # Qwen tells so of each tool's result
                self._work()
            case NativeName.TOOL_PRE:
                self._forget(event)
                if kind := prompt_kind(event.tool_name):
                    self._ask(_key(event), kind, event.tool_name)
                else:
                    self._work()
            case NativeName.PERMISSION if self.allows(event):
                self._work()
            case NativeName.PERMISSION:
                # The tools that ask by themselves need a permission, too; it is the same dialog.
                self._ask(_key(event), prompt_kind(event.tool_name) or PromptKind.PERMISSION, event.tool_name)
            case NativeName.TOOL_POST | NativeName.TOOL_FAILED:
                self._forget(event)
                self._asking.pop(_key(event), None)
                self._asking.pop(NativeName.NOTIFICATION, None)
                self._work()
            case NativeName.NOTIFICATION if kind := _NOTIFIED.get(event.notification_type):
                if not self._asking:
                    self._ask(NativeName.NOTIFICATION, kind, event.message)
            case NativeName.STOP_FAILURE:
                self.fail(event.error)
            case NativeName.SESSION_START if event.source != "compact":
                self.active = False
                self._asking.clear()
                self._state = None
            case NativeName.SESSION_END:
                self.active = False
                self._asking.clear()
                self._state = None

    def allow(self, event: NativeEvent) -> None:
        """The call of a tool that `event` tells of is allowed: nobody is asked."""
        self._allowed.add(_call(event))
        self._asking.pop(_key(event), None)

    def allows(self, event: NativeEvent) -> bool:
        """Whether a call that needs permission was allowed (`allow`) and has not been made yet."""
        return _call(event) in self._allowed

    def reserve(self, event: NativeEvent) -> None:
        """Nobody but the person is to allow the call of a tool that `event` tells of."""
        self._reserved.add(_call(event))

    def reserves(self, event: NativeEvent) -> bool:
        """Whether a call that needs permission is the person's to allow (`reserve`)."""
        return _call(event) in self._reserved

    def _forget(self, event: NativeEvent) -> None:
        """What was said of an equal call before does not hold for a new one."""
        self._allowed.discard(_call(event))
        self._reserved.discard(_call(event))

    def say(self, text: str) -> None:
        """Note a text of the agent's."""
        self._note("assistant", text)

    def end(self) -> None:
        """The agent has ended its turn."""
        self._over("ready", "")

    def fail(self, error: str) -> None:
        """The agent's model has failed, and with it the turn."""
        self._over("failed", error)

    def go_on(self, text: str) -> None:
        """The agent was made to go on with `text`."""
        self.continuations += 1
        self._continued = text[-_COMPARED:]
        self._note("user", text)
        self._asking.clear()
        self._work()

    def will_go_on(self, text: str) -> None:
        """The turn has ended, and `text` comes as a prompt of its own, for the agent to go on with."""
        self.continuations += 1
        self._continued = text.strip().rpartition("\n")[2].strip()[-_COMPARED:]

    def evidence(self) -> Evidence | None:
        """What the agent does, for the judge; None where its hooks have not said."""
        now = self._clock()
        if self._asking:
            kind, detail, since = next(reversed(self._asking.values()))
            return Evidence("hooks", "prompting", kind, detail, now - since)
        if self._state is None:
            return None
        return Evidence("hooks", self._state, None, self._detail, now - self._since)

    def _begin(self, prompt: str) -> None:
        self._allowed.clear()
        if not self.active:  # a prompt typed meanwhile joins the turn
            self._reserved.clear()
            self.began = self._clock()
            self.messages.clear()
        if self._continued and self._continued in prompt:  # some agents submit what they go on with
            self._continued = ""
        else:
            if not self.active:
                self.on_begin()
            self.continuations = 0
            self.runaway = False
            self.halted = ""
            self._note("user", prompt)
        self._asking.clear()
        self._work()

    def _work(self) -> None:
        self.active = True
        self._set("working")

    def _over(self, state: Literal["ready", "failed"], detail: str) -> None:
        self.active = False
        self._continued = ""  # it was read; the same words may come as the person's own
        self._asking.clear()
        self._set(state, detail)

    def _ask(self, key: str, kind: PromptKind, detail: str) -> None:
        self.active = True
        if key in self._asking and kind is PromptKind.PERMISSION:
            return  # it was told by another event, which said more
        self._asking[key] = (kind, one_line(detail, 200), self._clock())

    def _set(self, state: Literal["working", "ready", "failed"], detail: str = "") -> None:
        self._state, self._detail, self._since = state, one_line(detail, 200), self._clock()

    def _note(self, role: str, text: str) -> None:
        if text and len(self.messages) < MAX_TEXTS:
            self.messages.append({"role": role, "content": text})


def _call(event: NativeEvent) -> str:
    """A call of a tool by what it does: Codex says what for with the request for permission only."""
    doing = {name: value for name, value in event.tool_input.items() if name != "description"}
    return f"{event.tool_name} {json.dumps(doing, sort_keys=True, default=str)}"


def _key(event: NativeEvent) -> str:
    """Which call of a tool `event` is about; a request for permission does not give its id."""
    if prompt_kind(event.tool_name) is not None:
        return event.tool_name  # one at a time, and the answers are among the input afterwards
    return f"{event.tool_name} {json.dumps(event.tool_input, sort_keys=True, default=str)}"
