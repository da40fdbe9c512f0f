"""Every command, option and exit code in Markdown, for the page of commands on the site."""

from __future__ import annotations

import re

from docsite.command_line import EXIT_CODES, Command, groups, paragraphs


def commands() -> str:
    """Return a section for each group of commands, and one for each command in it."""
    parts = []
    for title, members in groups().items():
        parts += [f"## {title}", *(_section(each) for command in members for each in command.walk())]
    return "\n\n".join(parts)


def exit_codes() -> str:
    """Return the table of exit codes."""
    rows = [f"| {each.code} | {each.meaning.replace('|', chr(92) + '|')} |" for each in EXIT_CODES]
    return "\n".join(["| code | meaning |", "|---|---|", *rows])


def _section(command: Command) -> str:
    level = "###" if command.name.count(" ") == 1 else "####"
    parts = [f"{level} {command.name}", f"```text\n{command.synopsis}\n```", f"{prose(command.summary)}."]
    for block, text in paragraphs(command.description):
        parts.append(f"```text\n{text}\n```" if block else prose(text))
    if command.arguments:
        rows = [f"| `{_cell(each.form)}` | {_cell(prose(each.help))} |" for each in command.arguments]
        parts.append("\n".join(["| argument | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def prose(text: str) -> str:
    """Return plain text as Markdown: code between backticks stays, other special characters are escaped."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece
        if piece.startswith("`") and piece.endswith("`")
        else re.sub(r"([\\*_<>\[\]#~$])", r"\\\1", piece)
        for piece in pieces
    )
