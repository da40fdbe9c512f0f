"""The man page relay(1), in man macros, which groff and mandoc read. `make man` writes it to docs/relay.1."""

from __future__ import annotations

import re

from docsite import events, fleet_keys, json_keys, settings_table
from docsite.command_line import EXIT_CODES, Command, groups, paragraphs

_FILES = (
    ("relay.toml", "settings and the fleet of a project, or your own in ~/.config/relay"),
    ("relay.config.py", "handlers of a project, or your own in ~/.config/relay"),
    ("hooks.json", "rules for the hooks of every agent"),
)

_ENVIRONMENT = (
    ("RELAY_HOME", "one folder for configuration, state and sockets, instead of the XDG directories"),
    ("RELAY_TEAM", "the team where no option names one"),
    ("NO_COLOR", "no colours"),
)


_LINK = r"\[([^][]+)\]\([\w.]*(?:\.md)?(?:#[\w-]*)?\)"
"""A link to another page, or to a heading, in Markdown."""

_SETTINGS = (
    "What relay.toml may set: the default, the largest value, and whether relay takes it from a project that "
    "you do not trust (yes, no, or never: only from your own file)."
)

_FLEET = (
    "The keys of a relay.toml with agents: the kind of value, and the default. `[defaults]` takes the keys "
    "of `[agents.NAME]`; `actions` are on_idle, on_prompt and on_error. Paths are relative to the file; for "
    "each max_ key, 0 means no limit."
)

_EVENTS = "What handlers in relay.config.py may be registered for, with the fields of each event."

_JSON = (
    "What commands print with `--json`. `a.b` is the key `b` in the object `a`, or in each object of the "
    "list `a`; `a.*` is any key of `a`. Times are seconds since the epoch, sizes are bytes, unless stated "
    'otherwise; a key without a value is `null`. "Only" marks keys that are not always present.'
)


def man_page() -> str:
    """Return the man page as roff."""
    lines = [
        '.TH RELAY 1 "" "relay" "User Commands"',
        ".nh",  # a hyphen within a command would be taken for its own
        ".ad l",
        ".SH NAME",
        r"relay \- run agents in terminals, let them talk to each other, and keep them running",
        ".SH SYNOPSIS",
        ".B relay",
        r"\fICOMMAND\fR [\fIARG\fR...]",
        ".SH DESCRIPTION",
        _text(
            "relay runs any agent CLI in a pseudo-terminal, reads what the agent says, and delivers "
            "its messages to other agents when they wait for input. `relay COMMAND --help` prints the "
            "part of this page about a command."
        ),
    ]
    for title, members in groups().items():
        lines.append(f".SH {title.upper()}")
        for command in members:
            for each in command.walk():
                lines += _section(each)
    lines.append(".SH EXIT STATUS")
    for exit in EXIT_CODES:
        lines += [".TP", f".B {_escaped(exit.code)}", _text(exit.meaning)]
    lines += [".SH SETTINGS", _text(_SETTINGS)]
    for row in settings_table.rows():
        most = f"at most {row.most}; " if row.most else ""
        lines += [
            ".TP",
            _text(f"`{row.name}` ({row.default.strip('`')}; {most}{row.untrusted})"),
            _text(f"{row.help}."),
        ]
    lines += [".SH FLEET FILES", _text(_FLEET)]
    for title in fleet_keys.TABLES:
        lines.append(f'.SS "{_escaped(title)}"')
        for name, value, default, help in fleet_keys.rows(title):
            lines += [
                ".TP",
                _text(f"`{name}` ({value}{f'; {default}' if default else ''})"),
                _text(f"{help}."),
            ]
    lines += [".SH EVENTS", _text(_EVENTS)]
    for name, fields, meaning in events.rows():
        lines += [".TP", _text(f"`{name}`{': ' if fields else ''}{', '.join(fields)}"), _text(meaning)]
    lines += [".SH JSON", _text(_JSON)]
    for output in json_keys.sections():
        lines += [f'.SS "{_escaped(output.title)}"', *([_text(output.shape)] if output.shape else [])]
        for names, meaning in output.rows().items():
            lines += [".TP", f".B {_escaped(', '.join(names))}", *([_text(meaning)] if meaning else [])]
    for title, entries in (("ENVIRONMENT", _ENVIRONMENT), ("FILES", _FILES)):
        lines.append(f".SH {title}")
        for name, meaning in entries:
            lines += [".TP", f".B {_escaped(name)}", _text(f"{meaning[0].upper()}{meaning[1:]}.")]
    return "\n".join(lines) + "\n"


def _section(command: Command) -> list[str]:
    lines = [f'.SS "{_escaped(command.name)}"', _code(command.synopsis), ".PP", _text(f"{command.summary}.")]
    for block, text in paragraphs(command.description):
        lines += (
            [".PP", ".nf", ".RS 4", *map(_line, text.split("\n")), ".RE", ".fi"]
            if block
            else [".PP", _text(text)]
        )
    for argument in command.arguments:
        lines += [".TP", _code(argument.form), *([_text(argument.help)] if argument.help else [])]
    return lines


def _escaped(text: str) -> str:
    """Return `text` with what roff would take for its own escaped: backslashes, hyphens, quotes."""
    special = {"\\": "\\e", "-": "\\-", '"': "\\(dq", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
    return "".join(special.get(each, each) for each in text)


def _line(text: str) -> str:
    """Return a line of text, guarded where it would begin like a request."""
    return f"\\&{_escaped(text)}" if text[:1] in {".", "'"} else _escaped(text)


def _code(text: str) -> str:
    """Return `text` in bold, with the words in capitals, which stand for values, in italics."""
    words = re.split(r"(\b[A-Z][A-Z]+\b)", text)
    return "".join(
        f"\\fI{_escaped(word)}\\fR" if at % 2 else f"\\fB{_escaped(word)}\\fR"
        for at, word in enumerate(words)
        if word
    )


def _text(text: str) -> str:
    """Return a paragraph in one line, with code between backticks in bold, and without links."""
    text = re.sub(rf" \({_LINK}\)", "", text)
    pieces = re.split(r"`([^`]*)`", re.sub(_LINK, r"\1", text))
    joined = "".join(
        f"\\fB{_escaped(piece)}\\fR" if at % 2 else _escaped(piece) for at, piece in enumerate(pieces)
    )
    return f"\\&{joined}" if joined[:1] in {".", "'"} else joined
