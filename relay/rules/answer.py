"""A rule's answer: the meaning of its command's exit code and output at an event.

    CommandResult ──judge──→ RuleRun: attachments (the rule's words), HookResults (their effects)

An answer uses Claude Code's words (`decision`, `continue`, `hookSpecificOutput`, exit code 2, ...),
attachments and verdict keys (docs/RULES.md); they mean the same in both shapes of rules. Parts that cannot be
understood have no effect, and the `problem` of the RuleRun names them; the rest of the answer counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args

from relay.dataclass import dataclass, replace
from relay.hooks.result import HookResult
from relay.rules.command import KEEP, CommandResult
from relay.rules.event import EVENTS
from relay.rules.rule import Rule
from relay.text import one_line, parse_json

BLOCKS = 2
"""The exit code that blocks."""

CANNOT_RUN = (126, 127)
"""Exit codes of a shell that cannot run, or find, a program. Any other nonzero code blocks nothing."""

STOPPED = "Hook prevented continuation"
"""The reason if a rule stops a turn without saying why."""

AttachmentType = Literal[
    "hook_additional_context", "hook_success", "hook_stopped_continuation", "hook_blocking_error"
]

_CONTENT = {
    "hook_additional_context": ("additionalContext", "context", "text", "message", "content"),
    "hook_blocking_error": ("blockingError", "error", "reason", "message", "text", "content"),
    "hook_stopped_continuation": ("stopReason", "reason", "message", "text", "content"),
}
"""For each type of attachment, the verdict key that its content stands for, and that key's other names."""

_JSON = re.compile(r"\{|\[\s*[{\]]")  # the start of a JSON answer; `[12:00] ok` is text
_TEXT_IS_CONTEXT = frozenset({"UserPromptSubmit", "SessionStart"})
_TAKES_CONTEXT = frozenset(
    {"UserPromptSubmit", "SessionStart", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop"}
)
_AFTER_TOOL = frozenset({"PostToolUse", "PostToolUseFailure"})
_BLOCKS = frozenset({"block", "deny"})
_APPROVES = frozenset({"approve", "allow"})


@dataclass(frozen=True, slots=True)
class Attachment:
    """One part of a rule's answer. rule: the rule's name."""

    attachment_type: AttachmentType
    content: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True)
class RuleRun:
    """One run of a rule, or the reason why there was none.

    exit_code:   the command's; None for a prompt, or if the command did not end by itself.
    duration:    seconds.
    stdout, stderr: its output, up to command.KEEP bytes each.
    problem:     why it had no effect, or only part of it, in one sentence for the rule's author; or "".
    attachments, results: its answer, in both forms; `source` of a result is the rule's name.
    """

    rule: Rule
    exit_code: int | None = None
    duration: float = 0.0
    stdout: str = ""
    stderr: str = ""
    problem: str = ""
    attachments: tuple[Attachment, ...] = ()
    results: tuple[HookResult, ...] = ()


def judge(rule: Rule, output: CommandResult) -> RuleRun:
    answer = _Answer(rule)
    answer.read(output)
    return answer.run(output)


def prompted(rule: Rule) -> RuleRun:
    """Return the answer of a `prompt` rule: its text."""
    answer = _Answer(rule)
    answer.context(rule.prompt)
    return answer.run()


def unasked(rule: Rule, why: str) -> RuleRun:
    """Return the answer for a rule that could not run at all.

    It may guard a tool call, so a tool call is denied; everything else continues.
    """
    answer = _Answer(rule)
    answer.read(CommandResult(problem=why, started=False))
    return answer.run()


class _Answer:
    """One rule's answer while it is being read."""

    def __init__(self, rule: Rule) -> None:
        self.attachments: list[Attachment] = []
        self.results: list[HookResult] = []
        self.problems: list[str] = []
        self._rule = rule
        self._event = rule.event
        self._decides = EVENTS[rule.event].decides and rule.event != "SessionStart"
        self._quiet = False  # its contexts are not shown to the user

    def run(self, output: CommandResult = CommandResult()) -> RuleRun:  # noqa: B008 (frozen)
        return RuleRun(
            self._rule,
            output.exit_code,
            output.duration,
            _decoded(output.stdout),
            _decoded(output.stderr),
            " ".join(self.problems),
            tuple(self.attachments),
            tuple(self.results),
        )

    def read(self, output: CommandResult) -> None:
        if output.problem:
            self.problems.append(output.problem)
            if not output.started:
                self._could_not_run(output.problem)
            return
        text = _decoded(output.stdout).removeprefix("\ufeff").strip()
        if _in_background(text):
            if output.exit_code:
                self.problems.append('It printed {"async": true}, so its exit code has no effect.')
            return
        values = self._values(text, cut=output.cut)
        if output.exit_code == BLOCKS:
            reasons = [*filter(None, map(_reason, values or ())), _decoded(output.stderr).strip()]
            self.block(
                reasons[0] or f"{self._rule.name} does not allow it (exit code 2), and gives no reason."
            )
        elif values == [] and output.cut and self._event == "PreToolUse":
            # A reason that quotes a tool's input is as long as the agent made that input.
            self.block(f"What {self._rule.name} says about it is too long to read.")
        for value in values or []:
            self._value(value, blocks=output.exit_code == BLOCKS)
        if output.exit_code not in (0, BLOCKS):
            error = one_line(_decoded(output.stderr), 200)
            why = f": {error}" if error else "."
            self.problems.append(f"It ended with exit code {output.exit_code}{why}")
            decided = any(each.action not in ("continue", "inject_context") for each in self.results)
            if output.exit_code in CANNOT_RUN and not decided:
                self._could_not_run(self.problems[-1])
        elif values is None and output.exit_code == 0 and text and self._event in _TEXT_IS_CONTEXT:
            self.context(text)
            if output.cut:
                self.problems.append(f"Only the first {KEEP:,} bytes of its output count.")
        if output.exit_code == 0 and not self.attachments and not self.problems:
            self._attach("hook_success", text if values is None else "")

    @property
    def _unreasoned(self) -> str:
        return f"{self._rule.name} does not allow it, and gives no reason."

    def _could_not_run(self, why: str) -> None:
        """Deny a tool call: the rule may be its guard."""
        if self._event == "PreToolUse":
            self.block(f"{self._rule.name} could not run. {why}")

    def _values(self, text: str, *, cut: bool) -> list[dict[str, Any]] | None:
        """Return the JSON objects in `text`; None if it is plain text."""
        if not _JSON.match(text):
            return None
        try:
            found = parse_json(text)
        except (ValueError, RecursionError) as error:
            why = f"it is longer than {KEEP:,} bytes" if cut else str(error) or "it is nested too deeply"
            self.problems.append(f"Its output starts like JSON but is not valid: {why}.")
            return None if self._event in _TEXT_IS_CONTEXT and not cut else []
        every = found if isinstance(found, list) else [found]
        values = [each for each in every if isinstance(each, dict)]
        if len(values) < len(every):
            self.problems.append("A printed list may contain only attachments, which are objects.")
        return values

    def _value(self, value: Mapping[str, Any], *, blocks: bool) -> None:
        """Read one object. blocks: the exit code has already blocked, and nothing here overrides that."""
        fields = _Fields(value, self.problems)
        self._quiet = self._quiet or fields.flag("suppressOutput") is True
        if "attachment_type" in value or "attachmentType" in value:
            self._attachment(fields, blocks=blocks)
        else:
            self._verdict(fields, blocks=blocks)
        if self._quiet and not any(each.suppress_output for each in self.results):
            self._result(HookResult(suppress_output=True))

    def _attachment(self, fields: _Fields, *, blocks: bool) -> None:
        kind = fields.text("attachment_type")
        content = fields.get("content")
        if kind is None:
            return
        if kind not in get_args(AttachmentType):
            allowed = ", ".join(get_args(AttachmentType))
            self.problems.append(f"{_shown(kind)} is not a type of attachment; the types are {allowed}.")
        elif not isinstance(content, str | list | dict | None):
            self.problems.append(
                f"Its content is {_shown(content)}; it must be a string, a list of strings or an object."
            )
        elif kind == "hook_success":
            self._attach("hook_success", content if isinstance(content, str) else "")
        else:
            self._verdict(_Fields(_spelled(kind, fields.value), self.problems), blocks=blocks)

    def _verdict(self, fields: _Fields, *, blocks: bool) -> None:
        continues, prevents = fields.flag("continue"), fields.flag("preventContinuation")
        ends = continues is False or prevents is True
        if (message := fields.text("systemMessage")) and message.strip():
            self._result(HookResult(user_message=message))
        for text in fields.texts("additionalContext"):
            self.context(text)
        specific = self._specific(fields)
        if specific is not None:
            for text in specific.texts("additionalContext"):
                self.context(text)
        if blocks:
            return
        if "blockingError" in fields:
            self.error(fields.text("blockingError"))
        if fields.text("decision") is not None:
            self._decision(fields, ends=ends)
        if specific is not None and self._event == "PreToolUse":
            self._permission(specific)
        if fields.flag("force_continue"):
            self._force(fields.text("follow_up_message"), ends=ends)
        elif "follow_up_message" in fields:
            self.problems.append("follow_up_message needs force_continue: true.")
        if ends:
            self.stop(fields.text("stopReason"))

    def _specific(self, fields: _Fields) -> _Fields | None:
        if (value := fields.mapping("hookSpecificOutput")) is None:
            return None
        specific = _Fields(value, self.problems)
        if (name := specific.text("hookEventName")) == self._event:
            return specific
        what = "does not say its hookEventName" if name is None else f"is for {_shown(name)}"
        self.problems.append(f"Its hookSpecificOutput {what}; this is {self._event}.")
        return None

    def _decision(self, fields: _Fields, *, ends: bool) -> None:
        decision, reason = fields.text("decision"), fields.text("reason")
        if decision in _APPROVES:
            if self._event == "PreToolUse":
                self._result(HookResult("allow", reason=reason))
        elif decision not in _BLOCKS:
            self.problems.append(f"Its decision is {_shown(decision)}; it must be 'approve' or 'block'.")
        else:
            self.block(_stripped(reason) or self._unreasoned, ends=ends)

    def _permission(self, specific: _Fields) -> None:
        decision = specific.text("permissionDecision")
        reason = specific.text("permissionDecisionReason")
        match decision:
            case "deny":
                self.block(_stripped(reason) or self._unreasoned)
            case "ask" | "allow":
                self._result(HookResult(decision, reason=reason))
            case str():
                what = f"Its permissionDecision is {_shown(decision)}; it must be 'allow', 'deny' or 'ask'."
                self.problems.append(what)
        changed = specific.mapping("updatedInput")
        if changed is not None and decision != "deny":
            self._result(HookResult("modify", updated_input=changed))

    # Each method below adds an attachment, and the results that it has at this event.

    def context(self, text: str) -> None:
        """Give `text` to the agent's model; at a Stop the agent continues with it."""
        if not text.strip():
            return
        self._attach("hook_additional_context", text)
        if self._event in _TAKES_CONTEXT:
            self._inject(text, continues=self._event == "Stop")

    def error(self, reason: str | None) -> None:
        """Block as an attachment does; at a Stop show `reason` to the user, and let the turn end."""
        reason = _stripped(reason)
        if not reason:
            self.problems.append("Its blockingError is empty, so it blocks nothing.")
        elif self._event == "Stop":
            self._attach("hook_blocking_error", reason)
            self._result(HookResult(user_message=reason, user_message_level="error"))
        else:
            self.block(reason)

    def block(self, reason: str, *, ends: bool = False) -> None:
        """Refuse the action. ends: the same answer ends the turn, which outranks continuing it."""
        self._attach("hook_blocking_error", reason)
        if not self._decides:
            self._result(HookResult(user_message=reason, user_message_level="warning"))
        elif self._event in _AFTER_TOOL:
            self._inject(reason)
        elif self._event != "Stop":
            self._result(HookResult("deny", reason=reason))
        elif not ends:
            self._inject(reason, continues=True, follow_up=True)

    def stop(self, reason: str | None) -> None:
        reason = _stripped(reason) or STOPPED
        self._attach("hook_stopped_continuation", reason)
        if self._decides:
            self._result(HookResult("halt", reason=reason))
        elif self._event == "SessionStart":
            self._result(HookResult(user_message=reason, user_message_level="warning"))

    def _force(self, follow_up: str | None, *, ends: bool) -> None:
        if self._event != "Stop":
            self.problems.append(f"Only Stop has force_continue; this is {self._event}.")
        elif not ends:
            follow_up = _stripped(follow_up)
            self._attach("hook_stopped_continuation", follow_up)
            if follow_up:
                self._inject(follow_up, continues=True, follow_up=True)
            else:
                self._result(HookResult(force_continue=True))

    def _inject(self, text: str, *, continues: bool = False, follow_up: bool = False) -> None:
        result = HookResult("inject_context", text, force_continue=continues, suppress_output=self._quiet)
        self._result(replace(result, context_injection_role="user" if follow_up else "system"))

    def _result(self, result: HookResult) -> None:
        self.results.append(replace(result, source=self._rule.name))

    def _attach(self, kind: AttachmentType, content: str) -> None:
        self.attachments.append(Attachment(kind, content, self._rule.name))


_Kind = TypeVar("_Kind")


class _Fields:
    """The fields of one JSON object, by their names in camel or snake case.

    A field of the wrong type counts as absent, and adds a problem.
    """

    def __init__(self, value: Mapping[str, Any], problems: list[str]) -> None:
        self.value = value
        self._problems = problems
        self._wrong: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> Any:
        """Return the value, unchecked; None if it is absent."""
        first, *rest = key.split("_")
        found = self.value.get(first + "".join(word.title() for word in rest))
        snake = re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), key)
        return self.value.get(snake) if found is None else found

    def text(self, key: str) -> str | None:
        return self._checked(key, str, "a text")

    def flag(self, key: str) -> bool | None:
        return self._checked(key, bool, "true or false")

    def mapping(self, key: str) -> dict[str, Any] | None:
        return self._checked(key, dict, "an object")

    def texts(self, key: str) -> list[str]:
        """Return the strings in a field that is a string or a list of strings."""
        value = self.get(key)
        every = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(each, str) for each in every):
            self._mistaken(key, value, "a string, or a list of strings")
        return [each for each in every if isinstance(each, str)]

    def _checked(self, key: str, kind: type[_Kind], what: str) -> _Kind | None:
        value = self.get(key)
        if isinstance(value, kind):
            return value
        self._mistaken(key, value, what)
        return None

    def _mistaken(self, key: str, value: object, what: str) -> None:
        if value is not None and key not in self._wrong:
            self._wrong.add(key)
            self._problems.append(f"Its {key} is {_shown(value)}; it must be {what}.")


def _spelled(kind: str, attachment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict equivalent to an attachment."""
    content = attachment.get("content")
    verdict = {key: value for key, value in attachment.items() if key != "content"}
    key, *others = _CONTENT[kind]
    if isinstance(content, dict):
        verdict |= content
    elif content is not None:
        several = isinstance(content, list) and all(isinstance(each, str) for each in content)
        verdict[key] = "\n".join(content) if several and kind != "hook_additional_context" else content
    fields = _Fields(verdict, [])
    default = "" if kind == "hook_blocking_error" else None
    verdict[key] = next(
        (value for each in (key, *others) if (value := fields.get(each)) is not None), default
    )
    if kind == "hook_stopped_continuation" and fields.flag("force_continue") is not True:
        verdict["continue"] = False
    return verdict


def _reason(value: Mapping[str, Any]) -> str:
    """Return why a JSON answer blocks; "" if it does not say."""
    if value.get("attachment_type") == "hook_blocking_error":
        value = _spelled("hook_blocking_error", value)
    fields, reasons = _Fields(value, []), []
    specific = _Fields(fields.mapping("hookSpecificOutput") or {}, [])
    if fields.text("decision") not in _APPROVES:
        reasons.append(fields.text("reason"))
    if specific.text("permissionDecision") in {None, "deny"}:
        reasons.append(specific.text("permissionDecisionReason"))
    reasons.append(fields.text("blockingError"))
    return next(filter(None, map(_stripped, reasons)), "")


def _in_background(text: str) -> bool:
    """Return True for the first line with which a hook of Claude Code says that nothing waits for it."""
    line = text.partition("\n")[0]
    try:
        found = parse_json(line) if line.startswith("{") and '"async"' in line else None
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("async") is True


def _decoded(output: bytes) -> str:
    return output.decode("utf-8", "replace")


def _stripped(text: str | None) -> str:
    return (text or "").strip()


def _shown(value: object) -> str:
    return one_line(repr(value), 60)
