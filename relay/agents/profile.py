"""The profile of one kind of agent: frozen values, read from a pattern file (relay.agents.pattern_file)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Literal

from relay.dataclass import dataclass, field

ReaderKind = Literal["auto", "lines", "screen"]
InjectPolicy = Literal["auto", "never"]
StateName = Literal["working", "ready", "prompting", "failed", "draft"]
RegionName = Literal["screen", "bottom", "title"]
BlockEnd = Literal["drawn", "blank", "none", "joined"]
Positional = Literal["prompt", "other", "once"]
Takes = Literal["none", "one", "optional", "several"]
ErrorClass = Literal[
    "rate_limited", "unauthorized", "billing", "overloaded", "context_full", "network", "other"
]
ErrorSource = Literal["text", "code"]
DismissKey = Literal["", "esc"]


class PromptKind(StrEnum):
    """The kind of a dialog, by what its answer decides."""

    PERMISSION = "permission"  # whether a tool may run
    PLAN_APPROVAL = "plan_approval"  # whether a plan is carried out
    QUESTION = "question"  # what the agent wants to know
    OTHER = "other"


_WILD = re.compile(r"[*?\[]")

ANY_COLOUR = -1
"""In a style: every colour except the terminal's own."""


@dataclass(frozen=True, slots=True)
class RowStyle:
    """The style of some rows. Colours are 0xRRGGBB, or ANY_COLOUR; lines: regexes that match such a row."""

    backgrounds: frozenset[int] = frozenset()
    foregrounds: frozenset[int] = frozenset()
    lines: tuple[re.Pattern[str], ...] = ()


@dataclass(frozen=True, slots=True)
class Submit:
    """The typing and submitting of a text.

    delay: seconds between the text and Enter.
    avoid: characters that a typed text must not begin with.
    """

    delay: float = 0.3
    avoid: str = "!/@"


@dataclass(frozen=True, slots=True)
class StateRule:
    """A rule for what the screen or the title shows in one state.

    relay.agents.pattern_file says how the regexes in all, any, none, first, last and title must match.

    region:  all rows that are not blank (screen), the last `rows` of those (bottom), or the title as a row.
    dismiss: for a dialog that reports a limit: the key that closes it and chooses nothing; "" for none.
    """

    name: str
    state: StateName
    kind: PromptKind | None = None
    priority: int = 0
    region: RegionName = "screen"
    rows: int = 0
    all: tuple[re.Pattern[str], ...] = ()
    any: tuple[re.Pattern[str], ...] = ()
    none: tuple[re.Pattern[str], ...] = ()
    first: tuple[re.Pattern[str], ...] = ()
    last: tuple[re.Pattern[str], ...] = ()
    title: tuple[re.Pattern[str], ...] = ()
    dismiss: DismissKey = ""


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """A rule for the errors that end an agent's turn.

    cls:    the class of the error.
    match:  regexes, one of which is found in the error's text or matches its whole code.
    reset:  regexes of a text whose group `reset` is the time when a limit ends, as the agent words it.
    source: match applies to the text, or to the agent's own code for the error.
    """

    cls: ErrorClass
    match: tuple[re.Pattern[str], ...] = ()
    reset: tuple[re.Pattern[str], ...] = ()
    source: ErrorSource = "text"


@dataclass(frozen=True, slots=True)
class InputStyle:
    """The input of an agent, for relay.state.input_box.

    glyphs:       the marks before the typed text; "" if it has none, but a frame.
    bullets:      marks that begin what the agent says, and never point at an option.
    placeholders: regexes of what it shows while it is empty, if the cursor does not show that.
    idle:         regexes of titles that show that the agent is not working.
    assumed:      the style of any program: no file says how, or whether, this agent draws an input.
    """

    glyphs: str = ""
    bullets: str = ""
    placeholders: tuple[re.Pattern[str], ...] = ()
    idle: tuple[re.Pattern[str], ...] = ()
    assumed: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Native:
    """The sources beside the terminal: the kinds of agents whose hooks and whose transcripts it has."""

    hooks: str = ""
    transcript: str = ""


@dataclass(frozen=True, slots=True)
class AgentOption:
    """An option of an agent's command line, such as `-m` or `--model`, and the number of words it takes."""

    name: str
    takes: Takes = "none"


@dataclass(frozen=True, slots=True)
class Resume:
    """The command line that resumes a conversation, for relay.agents.resume.

    words:      the words that do it, with `{id}` in place of the conversation's id; () if none do.
    positional: the meaning of words that belong to no option: the first prompt, which is left out; something
                else, which stays; or a prompt that the agent answers once before it exits.
    keep:       the options that stay.
    drop:       the options that name a conversation or the first prompt; they are left out.
    refuse:     the options and commands with which the agent has no conversation to resume.
    """

    words: tuple[str, ...] = ()
    positional: Positional = "prompt"
    keep: tuple[AgentOption, ...] = ()
    drop: tuple[AgentOption, ...] = ()
    refuse: tuple[AgentOption, ...] = ()


@dataclass(frozen=True, slots=True)
class Interactive:
    """Programs that are interactive only with certain arguments: `bash` is, `bash x.sh` is not.

    The fields are the keys of an `[[interactive]]` table (relay.agents.pattern_file).
    """

    names: tuple[str, ...]
    words: int = 0
    run: frozenset[str] = frozenset()
    stay: frozenset[str] = frozenset()
    value: frozenset[str] = frozenset()

    def matches(self, command: str, arguments: Sequence[str]) -> bool:
        """Return True if `command`, a basename, runs interactively with `arguments`."""
        if not _is_named(command, self.names):
            return False
        words, runs, stays = 0, False, False
        rest = iter(arguments)
        for argument in rest:
            if argument == "--":
                words += len(list(rest))
            elif argument == "-" or not argument.startswith("-"):
                words += 1
                if words > self.words:
                    break
            else:
                for option, joined in _options(argument, self.value):
                    runs = runs or option in self.run
                    stays = stays or option in self.stay
                    if option in self.value and not joined:
                        next(rest, None)
        return stays or not (runs or words > self.words)


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of agent. `path` is the file it comes from (the user's, if there is one).

    checked: the versions of the agent that its rules were checked with.
    echo:   how it draws text typed into it, and other rows that are never its own words.
    code:   how it draws a line of a code fence.
    block_end: how it draws a line `>>>` below a paragraph: as it is, as an empty row, not at all; or it
        draws all lines of a paragraph as one.
    settle: seconds for which it may draw a text differently from its final form; 0 if it does not.
    states: by priority, the highest first.
    input:  None if the rules of `states` alone say when the agent is ready.
    errors: the first that matches counts.
    error_mark: what precedes its own error on the screen; None if its errors are not known there.
    menu_keys, text_options: the keys of a menu, and its options that take a text (relay.state.question).
    """

    name: str
    path: Path
    commands: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    interactive: tuple[Interactive, ...] = ()
    reader: ReaderKind = "auto"
    decoration: re.Pattern[str] | None = None
    prefix: str = "@"
    inject: InjectPolicy = "auto"
    fullscreen: bool = False
    prompts: tuple[re.Pattern[str], ...] = ()
    decisions: tuple[re.Pattern[str], ...] = ()
    questions: tuple[re.Pattern[str], ...] = ()
    dialogs: tuple[re.Pattern[str], ...] = ()
    executes: tuple[re.Pattern[str], ...] = ()
    menu_keys: tuple[re.Pattern[str], ...] = ()
    text_options: tuple[re.Pattern[str], ...] = ()
    echo: RowStyle = RowStyle()
    code: RowStyle = RowStyle()
    block_end: BlockEnd = "drawn"
    settle: float = 0.0
    submit: Submit = Submit()
    states: tuple[StateRule, ...] = ()
    input: InputStyle | None = None
    native: Native = Native()
    resume: Resume = Resume()
    errors: tuple[ErrorRule, ...] = ()
    error_mark: re.Pattern[str] | None = None

    @property
    def says_ready(self) -> bool:
        """True if the profile itself says what the screen shows while the agent is ready."""
        ruled = any(rule.state == "ready" for rule in self.states)
        return ruled or (bool(self.states) and self.input is not None)

    @property
    def converses(self) -> bool:
        """True for an agent that has conversations with the user; a plain program has none."""
        return bool(self.native.hooks or self.native.transcript or self.resume.words)

    def recognises(self, argv: Sequence[str]) -> bool:
        """Return True if `argv`, without prefixes such as `env` and `sudo`, starts this program."""
        if not argv:
            return False
        command = PurePath(argv[0]).name.removeprefix("-")  # a login shell's argv[0] is "-bash"
        return _is_named(command, self.commands) or any(
            rule.matches(command, argv[1:]) for rule in self.interactive
        )


def _is_named(command: str, patterns: Sequence[str]) -> bool:
    """Return True if `command` matches one of the fnmatch patterns, most of which are plain names.

    Compiling these would cost each session 15 ms.
    """
    return command in patterns or any(fnmatchcase(command, each) for each in patterns if _WILD.search(each))


def _options(argument: str, value: frozenset[str]) -> list[tuple[str, bool]]:
    """Return the options in one argument, each with True if its value is joined to it (`-xc`, `--a=b`)."""
    if argument.startswith("--"):
        name, equals, _ = argument.partition("=")
        return [(name, bool(equals))]
    found: list[tuple[str, bool]] = [(argument, False)] if len(argument) > 2 else []
    for place, letter in enumerate(argument[1:], start=2):
        option = "-" + letter
        joined = place < len(argument)
        found.append((option, joined))
        if option in value:
            break
    return found
