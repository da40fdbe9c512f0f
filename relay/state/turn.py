"""The turn of one agent: what was said in it, how often the agent went on with it, and what may still come.

Two sources tell of turns, and both keep this one record: the agent's own hooks (`take`), and where they do not
speak, its screen (relay.features.turn_tracker).
"""

from __future__ import annotations

from collections.abc import Callable

from relay.agents.hook_event import NativeEvent, NativeName, prompt_kind
from relay.agents.profile import PromptKind
from relay.state.hook_state import HookState, ToolPermissions

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
"""Characters by which a text that an agent goes on with is recognised."""

_NOTIFIED = {"permission_prompt": PromptKind.PERMISSION, "ToolPermission": PromptKind.PERMISSION}
"""Types of notifications that say that a dialog is open (Claude Code and Qwen; Gemini)."""


class Turn:
    """The turn of one agent. Times are those of `clock`, in seconds.

    hooks:         the agent's state by the word of its hooks.
    tools:         the permissions for calls of tools in this turn.
    active:        a prompt was submitted, as the hooks say, and the turn has not ended.
    began:         when that was.
    messages:      what was said in it: {"role": "user" or "assistant", "content": TEXT}, in order.
    continuations: how often in a row relay has had the agent go on with a turn that it had ended.
    runaway:       messages that the agent sent in it are held; until the next prompt.
    halted:        why a rule or a handler has stopped it: no tool is called any more, until the next prompt.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.hooks = HookState(clock)
        self.tools = ToolPermissions()
        self.active = False
        self.began = 0.0
        self.messages: list[dict[str, str]] = []
        self.continuations = 0
        self.runaway = False
        self.halted = ""
        self._clock = clock
        self._continued = ""

    @property
    def took(self) -> float | None:
        """Seconds since the turn began; None before the first."""
        return self._clock() - self.began if self.began else None

    def take(self, event: NativeEvent) -> bool:
        """Note what a hook tells; return True if a turn begins with it that is no continuation.

        Of `stop` nothing is noted yet: the agent may be made to go on (`end`, `go_on`).
        """
        if event.agent_id and event.name not in _SHARED:
            return False  # a subagent's turn is a part of this one
        match event.name:
            case NativeName.PROMPT_SUBMIT if event.prompt:
                return self._prompt(event.prompt)
            case NativeName.PROMPT_SUBMIT:  # Qwen tells so of each tool's result
                self._work()
            case NativeName.TOOL_PRE:
                self.tools.forget(event)
                self._ask_or_work(event, prompt_kind(event.tool_name))
            case NativeName.PERMISSION if self.tools.allows(event):
                self._work()
            case NativeName.PERMISSION:
                # The tools that ask by themselves need a permission, too; it is the same dialog.
                self._ask_or_work(event, prompt_kind(event.tool_name) or PromptKind.PERMISSION)
            case NativeName.TOOL_POST | NativeName.TOOL_FAILED:
                self.tools.forget(event)
                self.hooks.answered(event)
                self._work()
            case NativeName.NOTIFICATION if kind := _NOTIFIED.get(event.notification_type):
                self.active = True
                self.hooks.notified(kind, event.message)
            case NativeName.STOP_FAILURE:
                self.end(event.error)
            case NativeName.SESSION_END | NativeName.SESSION_START if event.source != "compact":
                self.active = False
                self.hooks.forget()
        return False

    def allow(self, event: NativeEvent) -> None:
        """Ask nobody about the call of a tool that `event` tells of."""
        self.tools.allow(event)
        self.hooks.allowed(event)

    def say(self, text: str) -> None:
        """Note a text of the agent's."""
        self._note("assistant", text)

    def end(self, error: str | None = None) -> None:
        """The agent has ended its turn; with an `error`, because its model failed."""
        self.active = False
        self._continued = ""  # it was read; the same words may come as the user's own
        self.hooks.stands(error)

    def go_on(self, text: str) -> None:
        """The agent was made to go on with `text`."""
        self.continuations += 1
        self._continued = text[-_COMPARED:]
        self._note("user", text)
        self.active = True
        self.hooks.begins()

    def will_go_on(self, text: str) -> None:
        """The turn has ended, and `text` comes as a prompt of its own, for the agent to go on with."""
        self.continuations += 1
        self._continued = text.strip().rpartition("\n")[2].strip()[-_COMPARED:]

    def halt(self, reason: str) -> None:
        """A rule or a handler has stopped the turn."""
        self.halted = reason

    def hold(self) -> None:
        """Messages that the agent sent in this turn are held."""
        self.runaway = True

    def begin_anew(self) -> None:
        """The user has submitted a prompt: what was counted and forbidden before does not hold for it."""
        self.continuations = 0
        self.runaway = False
        self.halted = ""

    def _prompt(self, prompt: str) -> bool:
        begins = not self.active  # a prompt typed meanwhile joins the turn
        self.tools.new_prompt(joins=self.active)
        if begins:
            self.began = self._clock()
            self.messages.clear()
        if self._continued and self._continued in prompt:  # some agents submit what they go on with
            self._continued = ""
            begins = False
        else:
            self.begin_anew()
            self._note("user", prompt)
        self.active = True
        self.hooks.begins()
        return begins

    def _ask_or_work(self, event: NativeEvent, kind: PromptKind | None) -> None:
        self.active = True
        if kind is None:
            self.hooks.works()
        else:
            self.hooks.asks(event, kind)

    def _work(self) -> None:
        self.active = True
        self.hooks.works()

    def _note(self, role: str, text: str) -> None:
        if text and len(self.messages) < MAX_TEXTS:
            self.messages.append({"role": role, "content": text})
