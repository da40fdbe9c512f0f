"""The list of agents as rows of text: groups, columns, filter, folded teams.

A row is text with SGR sequences (ECMA-48) as its only ones; what agents say is in it as relay.text shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence

from relay.columns import columns_of, fit
from relay.control.agent_state import colour, duration, state
from relay.control.board import Board, BoardEntry, Group
from relay.dataclass import dataclass
from relay.names import key
from relay.text import count, one_line

RESET, BOLD, UNDERLINE = "\x1b[0m", "\x1b[1m", "\x1b[4m"

_LINE = 300  # characters of an agent's line to consider
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Fold:
    """The agents of a folded team in one group."""

    group: Group
    team: str


@dataclass(frozen=True, slots=True)
class ListRow:
    """One row. id: of what it shows, by which it is found again; None for what cannot be chosen."""

    text: str
    id: Hashable = None
    entry: BoardEntry | None = None


@dataclass(frozen=True, slots=True)
class _Column:
    """most: its greatest width. least: the least width of the list that has room for it."""

    title: str
    most: int
    least: int
    cell: Callable[[BoardEntry, float], str]


def _tokens(entry: BoardEntry, _: float) -> str:
    return "" if entry.agent.tokens is None else brief(entry.agent.tokens)


_COLUMNS = (
    _Column("NAME", 16, 0, lambda entry, _: entry.name),
    _Column("TEAM", 10, 60, lambda entry, _: entry.agent.team),
    _Column("STATE", 26, 0, lambda entry, _: state(entry.agent)),
    _Column("FOR", 4, 0, lambda entry, now: duration(entry.agent, now)),
    _Column("NEW", 3, 0, lambda entry, _: str(entry.unread or "")),
    _Column("TOKENS", 6, 100, _tokens),
    _Column("BRANCH", 20, 90, lambda entry, _: entry.branch),
)
_COLOURED = {"NAME", "STATE"}


def table(
    board: Board, columns: int, now: float, words: str = "", folded: Collection[str] = ()
) -> tuple[str, list[ListRow]]:
    """Return the header and the rows of the list for `columns` columns; a narrow list must cut them.

    now: in seconds since the epoch. words: show only agents with all of them. folded: teams (names.key) with
    one row for their agents in each group, except those that need the user.
    """
    entries = [entry for entry in board.entries if _has(entry, words.casefold().split())]
    one_team = len({key(entry.agent.team) for entry in board.entries}) < 2
    shown = [
        column for column in _COLUMNS if columns >= column.least and not (one_team and column.title == "TEAM")
    ]
    cells = [[one_line(column.cell(entry, now), 80) for entry in entries] for column in shown]
    useful = [(column, texts) for column, texts in zip(shown, cells, strict=True) if any(texts)]
    widths = [min(max(map(columns_of, (column.title, *texts))), column.most) for column, texts in useful]
    titles = [fit(column.title, width) for (column, _), width in zip(useful, widths, strict=True)]
    room = max(columns - sum(widths) - 2 * len(widths) - len(_INDENT), 1)
    lines = []
    for at, entry in enumerate(entries):
        parts = []
        for (column, texts), width in zip(useful, widths, strict=True):
            cell = fit(texts[at], width)
            parts.append(f"{colour(entry.agent)}{cell}{RESET}" if column.title in _COLOURED else cell)
        lines.append((entry, _INDENT + "  ".join([*parts, fit(one_line(entry.line, _LINE), room)])))
    return _INDENT + "  ".join([*titles, "LINE"]), [*_grouped(lines, folded)]


def _grouped(lines: Sequence[tuple[BoardEntry, str]], folded: Collection[str]) -> Iterator[ListRow]:
    for group in Group:
        its = [(entry, text) for entry, text in lines if entry.group is group]
        if its:
            yield ListRow(f"{BOLD}{group} ({len(its)}){RESET}")
        teams: dict[str, int] = {}
        for entry, text in its:
            team = key(entry.agent.team)
            if group is Group.NEEDS_YOU or team not in folded:
                yield ListRow(text, (team, key(entry.agent.name), entry.host), entry)
            else:
                teams[team] = teams.get(team, 0) + 1
        for team, number in teams.items():
            yield ListRow(f"{_INDENT}▸ team {team}: {count(number, 'agent')}", Fold(group, team))


def _has(entry: BoardEntry, words: Sequence[str]) -> bool:
    agent = entry.agent
    text = " ".join((entry.name, agent.team, agent.agent, state(agent), entry.branch, entry.line)).casefold()
    return all(word in text for word in words)


def summary(board: Board | None) -> str:
    """Return one sentence on all agents and the inbox."""
    if board is None:
        return "looking ..."
    mail = f", {board.unread} unread" if board.unread else ""
    running = [entry for entry in board.entries if entry.group is not Group.DONE]
    if not running:
        return f"No agent is running. Start one with `relay wrap COMMAND`{mail}."
    needy = sum(entry.group is Group.NEEDS_YOU for entry in board.entries)
    verb = "none needs" if not needy else f"{needy} needs" if needy == 1 else f"{needy} need"
    return f"{count(len(running), 'agent')}, {verb} you{mail}"


def brief(number: int) -> str:
    """Return a number in six columns at most: 950, 12.3k, 1.2M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size * 0.99995:  # what rounds to 1000.0 of the next smaller unit
            return f"{number / size:.1f}{unit}"
    return str(number)
