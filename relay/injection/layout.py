"""The layout of an injection: sanitised, capped, and wrapped so that its sender and its end are clear.

    [relay 3f9a41c7 from Alice] hello [/relay 3f9a41c7]
    [relay b20c9d5e from Alice in #ops] hello, all [/relay b20c9d5e]
    [relay m4nd hook ruff on PostToolUse, 14:03:07] line 42 is too long [/relay m4nd]

A message's mark is its id, as shown by commands; other texts get four random characters each.  relay defaces
anything inside a text that looks like such a mark, so no text can pretend to end early or to come from
another sender.  The marks also ensure that a line never starts with `!`, `/` or `@` and never ends with
`@word` or a backslash, all of which agents' input boxes act on (docs/DELIVERY.md).

Texts of several hooks given at once become one text, each under a heading that only relay can write because
it contains the mark:

    [relay h8tc hooks]
    2 hooks say this, each under its name:

    [relay h8tc] From ruff on PostToolUse, 14:03:07:
    line 42 is too long

    [relay h8tc] From mypy on PostToolUse, 14:03:08:
    line 7 returns nothing
    [/relay h8tc]

relay quotes a line that reads as a directive:

    > @memory:save this

The agent may show or unfold a text long after it was typed, when the line would count as the agent's own.
"""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections.abc import Sequence
from enum import Enum

from relay import lazy_re
from relay.errors import MessageRefused
from relay.injection.injection import Injection
from relay.message import ID_SHOWN, MAX_BODY
from relay.state.readiness import TerminalSnapshot
from relay.text import count

MAX_HOOK_BYTES = 10 * 1024
"""Bytes of UTF-8 in the longest text of a hook, a notice, a nudge or a closing prompt."""

LINE_BYTES = 4_000 if sys.platform == "linux" else 1_000
"""Bytes in one typed line.

In canonical mode, the kernel silently truncates a longer line: Linux at 4,095 (N_TTY_BUF_SIZE in
drivers/tty/n_tty.c, including the newline), macOS at 1,024 (MAX_CANON in <sys/syslimits.h>).
"""

MAX_PARTS = 2_000
"""Maximum lines of one injection if every newline submits."""

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # no look-alikes
_NONCE_LENGTH = 4
_ID = lazy_re.compile(r"[A-Za-z0-9_-]{4,}", re.ASCII)
_SOURCE_LENGTH = 64
_LONGEST_NAME = 1024  # characters of a name to examine

# Remove whole sequences first, or their parameters would remain as text: CSI (including the end of a
# bracketed paste) and OSC (ECMA-48 sections 5.4 and 8.3.89; xterm ctlseqs).
_SEQUENCE = lazy_re.compile(
    "(?:\x1b\\[|\x9b)[0-?]{0,256}[ -/]{0,16}[@-~]"
    "|(?:\x1b\\]|\x9d)[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\\\|\x9c)"
)
_NEWLINE = lazy_re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
# C0 except tab and newline, DEL, C1; bidirectional controls (UAX #9); invisible characters that can hide
# text: zero-width space, word joiner and invisible operators, soft hyphen, Mongolian vowel separator, byte
# order mark, tags. The zero-width joiner stays because emoji need it.
_CONTROL = lazy_re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SURROGATE = lazy_re.compile("[\ud800-\udfff]")
_JOINERS = lazy_re.compile("[\u200c\u200d\ufe0e\ufe0f]")
_QUOTE = "> "  # no directive starts with it (relay/directives/grammar.py, DECORATION)
_BETWEEN = r"[\s\u200b-\u200d\u2060\ufe0e\ufe0f\ufeff]*+"  # possessive: no backtracking over 64 KB of them


_RELAY = _BETWEEN.join("relay")  # with any invisible characters between its letters
# `[relay` and `[/relay`, also with blanks or joiners between, or another alphabet's bracket or slash.
_MARK = lazy_re.compile(rf"[\[［⁅【〔〖⟦❲﹝](?={_BETWEEN}[/／⁄∕]?+{_BETWEEN}{_RELAY})", re.IGNORECASE)
_HOOK_TAG = "user-prompt-submit-hook"
# The same for the tags around a hook's context.
_TAG = lazy_re.compile(
    rf"[<＜‹〈⟨﹤❮](?={_BETWEEN}[/／⁄∕]?+{_BETWEEN}"
    rf"{re.escape(_HOOK_TAG).replace(re.escape('-'), f'{_BETWEEN}[-_‐-―−]{_BETWEEN}')})",
    re.IGNORECASE,
)
_HEADING = lazy_re.compile(r"\W*+From\b[^\n]*:\s*$", re.IGNORECASE)
"""A line of a hook's text that reads as the heading of another hook's."""


class Style(Enum):
    """The ways in which programs take text, by what a newline does."""

    LINES = "lines"  # canonical mode: the kernel ends a line at each newline
    KEYS = "keys"  # raw mode without bracketed paste: a newline submits, a tab completes
    PASTE = "paste"  # bracketed paste (mode 2004): the text is one unit


def style_of(sight: TerminalSnapshot) -> Style:
    """Return how the program takes text."""
    if sight.tty.canonical:
        return Style.LINES
    return Style.PASTE if sight.bracketed_paste else Style.KEYS


def sanitise(text: str) -> str:
    """Return `text` without anything that a terminal or input box would act on, except newlines and tabs."""
    text = _NEWLINE.sub("\n", _SEQUENCE.sub("", text))
    return _SURROGATE.sub("\ufffd", _CONTROL.sub("", text))


def deface(text: str) -> str:
    """Return `text` with nothing that reads as the start or end of an injection or a hook's context."""
    return _TAG.sub("(", _MARK.sub("(", text))


def directive_pattern(prefix: str = "@", decoration: re.Pattern[str] | None = None) -> re.Pattern[str]:
    """Return a pattern for the start of a line that reads as a directive of any namespace.

    prefix: the character that starts a directive for this agent; decoration: a pattern of what the agent puts
    before it.
    """
    directive = rf"(?:{re.escape(prefix)}|@)[A-Za-z][\w-]*:"
    # More characters than the grammar's bullets: an agent may draw or drop some itself.
    leads = [r"[^\w>\\]*", *([] if decoration is None else [f"(?:{decoration.pattern})"])]
    return re.compile("|".join(lead + directive for lead in leads))


DIRECTIVE = directive_pattern()


def quote(text: str, directive: re.Pattern[str] = DIRECTIVE) -> str:
    """Return `text` with lines that start with `directive` quoted, so they are not directives."""
    return "\n".join(
        line[: -len(said)] + _QUOTE + said
        if ":" in line and (said := line.lstrip()) and directive.match(_JOINERS.sub("", line))
        else line
        for line in text.split("\n")
    )


def mark_of(injection: Injection) -> str:
    """Return the mark for `injection`: the shown part of a message's id, or a random one."""
    shown = injection.id[:ID_SHOWN]
    return shown if injection.kind == "message" and _ID.fullmatch(shown) else nonce()


def nonce() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(_NONCE_LENGTH))


def opening_mark(mark: str) -> str:
    """Return the start of every text typed with `mark`."""
    return f"[relay {mark}"


def closing_mark(mark: str) -> str:
    """Return the end of every text typed with `mark`."""
    return f"[/relay {mark}]"


def check(injection: Injection) -> str:
    """Return the sanitised, defaced text of `injection`. Raise MessageRefused if it is empty or too large."""
    limit = MAX_BODY if injection.kind in {"message", "task"} else MAX_HOOK_BYTES
    size = len(injection.text.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise MessageRefused(
            f"the text has {size:,} bytes, and relay can type at most {limit:,}. "
            "Write it to a file and send the file's path."
        )
    # Trailing blanks and blank lines only make the end hard to see.
    text = deface(sanitise(injection.text)).strip("\n").rstrip()
    if not text.strip():
        raise MessageRefused("it contains no text that relay can type.")
    return text


def clean(injection: Injection, directive: re.Pattern[str] = DIRECTIVE) -> str:
    """Return the text of `injection` (`check`), quoting lines that read as a directive or heading."""
    text = quote(check(injection), directive)
    return quote(text, _HEADING) if injection.kind == "hook" else text


def context(text: str, glue: str = "\n") -> str:
    """Return `text`, a hook's context for a prompt, in a pair of tags, with `glue` inside them."""
    return f"<{_HOOK_TAG}>{glue}{text}{glue}</{_HOOK_TAG}>"


def enclose(
    texts: Sequence[tuple[Injection, str]], mark: str, contexts: Sequence[tuple[Injection, str]] = ()
) -> str:
    """Return `texts`, each from `clean`, as one text with `mark` (`mark_of`); several must all be hooks'.

    contexts: also from `clean`; they precede the texts, each in its own tags.
    """
    before = "".join(context(text) + "\n" for _, text in contexts)
    if len(texts) == 1:
        ((injection, text),) = texts
        text = before + text
        glue = "\n" if "\n" in text else " "
        return f"[relay {mark}{_label(injection)}]{glue}{text}{glue}{closing_mark(mark)}"
    parts = "\n\n".join(f"[relay {mark}] From {_provenance(injection)}:\n{text}" for injection, text in texts)
    head = f"{len(texts)} hooks say this, each under its name:"
    return f"[relay {mark} hooks]\n{before}{head}\n\n{parts}\n{closing_mark(mark)}"


def lay_out(
    injection: Injection,
    style: Style,
    mark: str,
    directive: re.Pattern[str] = DIRECTIVE,
    contexts: Sequence[Injection] = (),
) -> list[str]:
    """Return the texts to type and submit one after another, each with `mark` (from `mark_of`).

    With PASTE, return one text, which may contain newlines; otherwise one per line, or more if a line would
    exceed LINE_BYTES.  `contexts` precede the text, as in `enclose`.  Raise MessageRefused as `check` does,
    and for too many lines.
    """
    if style is Style.PASTE:
        added = [(each, clean(each, directive)) for each in contexts]
        return [enclose([(injection, clean(injection, directive))], mark, added)]
    # Each line is submitted separately, and a tag alone would mean nothing.
    text = "\n".join([*(context(check(each), "") for each in contexts), check(injection)])
    label = _label(injection)
    end = closing_mark(mark)
    if style is Style.KEYS:
        text = text.expandtabs(4)
    # Assume the widest numbering, so every part fits.
    room = LINE_BYTES - len(f"[relay {mark} {MAX_PARTS}/{MAX_PARTS}{label}] {_QUOTE} {end}".encode())
    lines = [line for line in text.split("\n") if line.strip()]
    parts = [quote(part, directive) for line in lines for part in _split(line, room)]
    if len(parts) > MAX_PARTS:
        raise MessageRefused(
            f"it would take {count(len(parts), 'line')}, and relay types at most {MAX_PARTS:,} into "
            "a program that reads one line at a time. Write it to a file and send the file's path."
        )
    if len(parts) == 1:
        return [f"[relay {mark}{label}] {parts[0]} {end}"]
    numbered = enumerate(parts, start=1)
    return [f"[relay {mark} {number}/{len(parts)}{label}] {part} {end}" for number, part in numbered]


def _label(injection: Injection) -> str:
    source = _word(injection.source)
    if injection.kind == "message":
        place = f" in #{_word(injection.channel)}" if injection.channel else ""
        return f" from {source}{place}" if source else ""
    if injection.kind == "task" and source:
        return f" task from {source}"
    if injection.kind == "hook":
        return f" {'' if source in {'', 'hook'} else 'hook '}{_provenance(injection)}"
    return f" {injection.kind} {source}" if source and source != injection.kind else f" {injection.kind}"


def _provenance(injection: Injection) -> str:
    """Return the hook, its event and the time, if known: `ruff on PostToolUse, 14:03:07`."""
    said = _word(injection.source) or "hook"
    if injection.event and "(on " not in said:  # a handler's name contains its event
        said += f" on {_word(injection.event)}"
    return f"{said}, {time.strftime('%H:%M:%S', time.localtime(injection.time))}" if injection.time else said


def _word(text: str) -> str:
    """Return the name of a text's source in a form that a mark may show."""
    shown = deface(sanitise(_JOINERS.sub("", text[:_LONGEST_NAME])))
    return re.sub(r"[\[\]\s]+", " ", shown)[:_SOURCE_LENGTH].strip()


def _split(line: str, room: int) -> list[str]:
    """Return `line` in pieces of at most `room` bytes of UTF-8, split between words if possible."""
    pieces = []
    while len(line.encode()) > room:
        fits = len(line.encode()[:room].decode("utf-8", "ignore"))
        cut = line.rfind(" ", fits // 2, fits + 1)
        cut = cut if cut > 0 else fits
        pieces.append(line[:cut].rstrip())
        line = line[cut:].lstrip(" ")
    return [*pieces, line] if line else pieces
