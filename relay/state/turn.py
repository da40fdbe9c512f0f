"""The current turn of one agent: its messages, its continuations, and its tool permissions.

The agent's own hooks keep this record (`take`); if they do not report, its screen does
(relay.features.turn_tracker).
"""

from __future__ import annotations

from collections.abc import Callable

from relay.agents import kinds
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.profile import PromptKind
from relay.state.hook_state import HookState, ToolPermissions

MAX_TEXTS = 1_000
"""Messages of one turn kept for agent_end's `messages`."""

TOOL_EVENTS = frozenset(
    {NativeName.TOOL_PRE, NativeName.PERMISSION, NativeName.TOOL_POST, NativeName.TOOL_FAILED}
)
"""The events of a tool call."""

_SHARED = TOOL_EVENTS | {NativeName.NOTIFICATION}
"""Events that also count for the agent's turn when a subagent causes them."""

_COMPARED = 200
"""Characters of a continuation's text that identify it."""


class Turn:
    """The turn of one agent. Times are in seconds, on `clock`.

    hooks:         the agent's state as its hooks report it.
    tools:         the permissions for tool calls in this turn.
    active:        the hooks have reported a prompt, but not the end of its turn.
    began:         the time of that prompt; 0.0 before the first.
    messages:      the texts of the turn in order: {"role": "user" or "assistant", "content": TEXT}.
    continuations: how many times in a row relay has made the agent continue after its turn.
    runaway:       the messages that the agent sends in this turn are held. Reset by the next prompt.
    halted:        why a rule or a handler stopped the turn, so the agent may call no tools; "" if none did.
                   Reset by the next prompt.
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

    @property
    def last_said(self) -> str:
        """The agent's last text of the turn, for agents whose stop event lacks it."""
        last = self.messages[-1] if self.messages else {}
        return last["content"] if last.get("role") == "assistant" else ""

    def take(self, event: NativeEvent) -> bool:
        """Record a hook's event; return True if it begins a new turn, not a continuation.

        `stop` records nothing yet because relay may make the agent continue: call `end` or `continue_with`.
        """
        if event.agent_id and event.name not in _SHARED:
            return False  # a subagent's turn is part of this one
        match event.name:
            case NativeName.PROMPT_SUBMIT if event.prompt:
                return self._prompt(event.prompt)
            case NativeName.PROMPT_SUBMIT:  # Qwen reports each tool's result this way
                self._ask_or_work(event, None)
            case NativeName.TOOL_PRE:
                self.tools.forget(event)
                self._ask_or_work(event, _dialog(event))
            case NativeName.PERMISSION if self.tools.allows(event):
                self._ask_or_work(event, None)
            case NativeName.PERMISSION:
                # Tools that ask the user anyway also need a permission, in the same dialog.
                asks = None if kinds.find(event.agent).decides_after_hook else PromptKind.PERMISSION
                self._ask_or_work(event, _dialog(event) or asks)
            case NativeName.TOOL_POST | NativeName.TOOL_FAILED:
                self.tools.forget(event)
                self.hooks.answered(event)
                self._ask_or_work(event, None)
            case NativeName.NOTIFICATION if kinds.find(event.agent).notifies_of_dialog(event):
                self.active = True
                self.hooks.notified(PromptKind.PERMISSION, event.message)
            case NativeName.STOP_FAILURE:
                self.end(event.error)
            case NativeName.SESSION_END | NativeName.SESSION_START if event.source != "compact":
                self.active = False
                self.hooks.forget()
        return False

    def allow(self, event: NativeEvent) -> None:
        """Allow the tool call of `event` without asking the user."""
        self.tools.allow(event)
        self.hooks.allowed(event)

    def say(self, text: str) -> None:
        self._note("assistant", text)

    def end(self, error: str | None = None) -> None:
        """Record the end of the turn; with an `error` if the model failed."""
        self.active = False
        self._continued = ""  # the agent has read it; the user may submit the same words later
        self.hooks.ends(error)

    def continue_with(self, text: str) -> None:
        """Record that the reply to a hook makes the agent continue with `text`."""
        self.continuations += 1
        self._continued = text[-_COMPARED:]
        self._note("user", text)
        self.active = True
        self.hooks.begins()

    def will_continue(self, text: str) -> None:
        """Record that relay will submit `text` as a prompt to make the agent continue."""
        self.continuations += 1
        self._continued = text.strip().rpartition("\n")[2].strip()[-_COMPARED:]

    def halt(self, reason: str) -> None:
        """Stop the turn for `reason`: the agent may call no tools until the next prompt."""
        self.halted = reason

    def hold(self) -> None:
        """Record that the messages that the agent sends in this turn are held."""
        self.runaway = True

    def reset(self) -> None:
        """Reset the counts and prohibitions: the user has submitted a prompt."""
        self.continuations = 0
        self.runaway = False
        self.halted = ""

    def _prompt(self, prompt: str) -> bool:
        begins = not self.active  # a prompt during a turn joins it
        self.tools.new_prompt(joins=self.active)
        if begins:
            self.began = self._clock()
            self.messages.clear()
        if self._continued and self._continued in prompt:  # some agents submit a continuation's text
            self._continued = ""
            begins = False
        else:
            self.reset()
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

    def _note(self, role: str, text: str) -> None:
        if text and len(self.messages) < MAX_TEXTS:
            self.messages.append({"role": role, "content": text})


def _dialog(event: NativeEvent) -> PromptKind | None:
    """Return what a tool asks the user for; None if it asks for nothing, or is unknown."""
    return kinds.find(event.agent).dialogs.get(event.tool_name)
