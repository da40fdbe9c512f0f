"""`relay top`: all agents on one screen, by what they need from the user, and the keys to deal with them.

Looks (a thread) ─ Board ─→ rows.table ─→ ChoiceList      LiveScreen ←─ view_stream ─ the chosen agent
                                              └ key ─→ the command of relay that does it
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.events import Resize
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Footer, Input, Static

from relay.columns import columns_of, cut
from relay.control.agent_state import duration, state
from relay.control.board import Board, BoardEntry
from relay.control.commands import CommandEnd
from relay.errors import RelayError
from relay.names import key
from relay.text import one_line, visible
from relay.top.choice_list import ChoiceList, Lines
from relay.top.dialogs import Confirmation, Dialog, InboxDialog, QuestionDialog, TextDialog
from relay.top.live_screen import LiveScreen
from relay.top.remote import RemoteHost
from relay.top.rows import RESET, UNDERLINE, Fold, ListRow, brief, summary, table

LIST_KEYS = frozenset(
    ("attach", "answer", "write", "restart", "stop", "pause", "filter", "fold", "inbox", "help", "leave")
)
"""The actions of letters, and of Enter, in the list."""

WIDE = 160
"""Columns from which on the screen of the chosen agent is beside the list, not below it."""

SAID_FOR = 20.0
"""Seconds for which the result of a command is shown."""

LOOK_EVERY = 1.0
"""Least seconds between two looks at all agents."""

SHARE = 50
"""A look at all agents takes at most one part in so many of the processor's time."""

HELP = """\
Up, Down, k, j, PgUp, PgDn, Home, End: choose an agent (or click)
Enter (or double click): attach to it; Ctrl-] d comes back
a: its question, and the answers    m: write a message to it
r: restart it; one that has ended resumes its conversation
x: stop it    p: hold it, or let it continue
/: show only agents with these words; Esc shows all
f: fold or unfold the agents of its team
i: your inbox    q, Ctrl-C: quit

NEW: unread items in your inbox.
An agent needs you if it asks, has failed, is held, or does not answer.
For a screen reader, `relay inbox --follow` prints lines."""


class Looked(Message):
    """A look at all agents has ended."""

    def __init__(self, found: Board | Exception) -> None:
        super().__init__()
        self.found = found


class Looks(threading.Thread):
    """Looks at all agents repeatedly, in a thread: one that hangs is slow to answer."""

    def __init__(self, look: Callable[[], Board], tell: Callable[[Looked], object]) -> None:
        super().__init__(daemon=True)
        self._look = look
        self._tell = tell
        self._now = threading.Event()
        self._over = False

    def run(self) -> None:
        while not self._over:
            self._now.clear()
            began = time.process_time()
            try:
                found: Board | Exception = self._look()
            except Exception as error:  # noqa: BLE001 (`Top.on_looked` says or raises it)
                found = error
            self._tell(Looked(found))
            self._now.wait(max(LOOK_EVERY, SHARE * (time.process_time() - began)))

    def now(self) -> None:
        self._now.set()

    def stop(self) -> None:
        self._over = True
        self._now.set()


class Top(App[int]):
    """The screen.

    look: lists the agents. attach: attaches this terminal to an agent. run: runs a command of relay.
    """

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False  # a click chooses; Shift selects in the terminal
    CSS = """
    #summary, #header, #about, #notice { height: 1; }
    #summary { text-style: bold; }
    #notice { height: auto; max-height: 4; display: none; }
    #words { display: none; height: 1; }
    #agents { layout: vertical; height: 1fr; }
    #list { height: 1fr; scrollbar-size-vertical: 1; }
    #shown { height: 1fr; }
    .wide #agents { layout: horizontal; }
    .wide #listed { width: 60%; padding: 0 1 0 0; }
    .wide #shown { width: 40%; }
    Footer, FooterKey { background: ansi_default; color: ansi_default; }
    FooterKey .footer-key--key { background: ansi_default; color: ansi_default; text-style: reverse; }
    FooterKey .footer-key--description { background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "attach", "attach", key_display="Enter"),
        Binding("a", "answer", "answer"),
        Binding("m", "write", "write"),
        Binding("r", "restart", "restart"),
        Binding("x", "stop", "stop"),
        Binding("p", "pause", show=False),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("f", "fold", show=False),
        Binding("i", "inbox", "inbox"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "leave(0)", "quit"),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False),
        Binding("escape", "unfilter", show=False),
    ]

    def __init__(
        self,
        look: Callable[[], Board],
        attach: Callable[[BoardEntry], object],
        run: Callable[..., Awaitable[CommandEnd]],
        remotes: Mapping[str, RemoteHost] = MappingProxyType({}),
    ) -> None:
        super().__init__(ansi_color=True)
        self._attach_to = attach
        self._run_here = run
        self._remotes = remotes
        self._board: Board | None = None
        self._folded: set[str] = set()
        self._looks = Looks(look, self.post_message)
        self._notice_timer: Timer | None = None
        self._shown: object = None  # the id of the row whose agent the pane shows

    def compose(self) -> ComposeResult:
        yield Static(id="summary", markup=False)
        with Container(id="agents"):
            with Vertical(id="listed"):
                yield Lines(id="header")
                yield ChoiceList(id="list")
            with Vertical(id="shown"):
                yield Lines(id="about")
                yield LiveScreen(id="live")
        yield Static(id="notice", markup=False)
        yield Input(id="words", placeholder="words that an agent must have; Esc shows all", compact=True)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.theme = "ansi-dark"
        self.query_one(ChoiceList).focus()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            loop.add_signal_handler(number, self.action_leave, 128 + number)
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))  # after Ctrl-Z and fg
        self._draw()
        self.call_after_refresh(self._looks.start)  # once the widgets have their sizes

    def on_unmount(self) -> None:
        self._looks.stop()

    def on_resize(self, event: Resize) -> None:
        self.screen.set_class(event.size.width >= WIDE, "wide")
        if self.is_running:
            self.call_after_refresh(self._draw)

    # What is shown.

    def on_looked(self, event: Looked) -> None:
        if not self.is_running:  # it is leaving, and has no widgets any longer
            return
        if isinstance(event.found, RelayError):
            self._say(str(event.found))
            return
        if isinstance(event.found, Exception):
            raise event.found
        self._board = event.found
        if event.found.problem:
            self._say(event.found.problem)
        self._draw()
        if isinstance(self.screen, InboxDialog):
            self.screen.show(self._board.inbox)

    def _draw(self, chosen: Hashable = None) -> None:
        """Draw all but the chosen agent's screen. chosen: the id of the row to choose."""
        screen = self.screen_stack[0]
        screen.query_one("#summary", Static).update(summary(self._board))
        if self._board is None:
            return
        words = screen.query_one("#words", Input).value
        agents = screen.query_one("#list", ChoiceList)
        header, rows = table(self._board, agents.columns, time.time(), words, self._folded)
        screen.query_one("#header", Lines).show([f"{UNDERLINE}{header}{RESET}"] if rows else [])
        most = self.size.height // 2 - 1
        high = "100%" if screen.has_class("wide") else min(len(rows) + 1, most)
        screen.query_one("#listed").styles.height = high
        agents.show(rows, chosen)
        self._show_chosen()

    def on_choice_list_chosen(self) -> None:
        if self.is_running:  # not when it is leaving
            self._show_chosen()

    def _show_chosen(self) -> None:
        screen = self.screen_stack[0]
        row = screen.query_one("#list", ChoiceList).chosen
        live = screen.query_one("#live", LiveScreen)
        about = screen.query_one("#about", Lines)
        about.show([_rule(_about(row), max(about.size.width, 1))])
        entry = None if row is None else row.entry
        shows = (row.id, entry.agent.id) if row and entry and entry.has_screen else None
        if entry is None or shows is None:
            live.say([] if entry is None else _words(entry, about.size.width))
        elif shows != self._shown and entry.host:
            peek = ("peek", "--ansi", "-t", entry.agent.team, "--", entry.agent.name)
            live.poll(partial(self._remotes[entry.host].carry_out, *peek))
        elif shows != self._shown:
            live.follow(entry.agent)
        self._shown = shows

    def _say(self, text: str) -> None:
        """Show a sentence for a while."""
        notice = self.screen_stack[0].query_one("#notice", Static)
        notice.update(visible(text))
        notice.display = bool(text)
        if self._notice_timer is not None:
            self._notice_timer.stop()
        self._notice_timer = self.set_timer(SAID_FOR, partial(self._say, "")) if text else None

    # What the user does.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Return False for a key of the list that is not meant for it.

        Several keys that arrive at once are all the list's, even if the first one opens a dialog: the letters
        of a message must not restart an agent.
        """
        return action not in LIST_KEYS or (
            len(self.screen_stack) == 1 and not isinstance(self.focused, Input)
        )

    def on_choice_list_opened(self) -> None:
        self.action_attach()

    def action_attach(self) -> None:
        if (entry := self._chosen()) is None:
            return
        with self.suspend():
            try:
                self._attach_to(entry)
                said = ""
            except RelayError as error:
                said = str(error)
            if not os.isatty(0):  # the window was closed: there is no terminal to restore
                os._exit(128 + signal.SIGHUP)
        self._say(said)
        self._looks.now()

    def action_answer(self) -> None:
        if entry := self._chosen():
            self.run_worker(self._answer(entry), group="question", exclusive=True)

    async def _answer(self, entry: BoardEntry) -> None:
        name, team = _names(entry)
        found = await self._outcome("answer", name, "-t", team, "--json", host=entry.host)
        if found.code != 0:
            self._say(found.sentence)
            return
        asked = json.loads(found.out)
        chosen = await self.push_screen_wait(QuestionDialog(name, asked))
        words = ["answer", "-t", team, "--question", asked["id"]]
        if chosen == ("text", ""):
            chosen = await self.push_screen_wait(
                TextDialog(f"Answer {name} with:", "\n".join(asked["lines"]))
            )
            words += ["--text", "-"]
        if chosen is not None:
            kind, value = chosen
            choice = [value] if kind == "choice" else []
            await self._run(*words, name, *choice, text=value, host=entry.host)

    def action_write(self) -> None:
        if entry := self._chosen():
            name, team = _names(entry)

            def written(text: tuple[str, str] | None) -> None:
                if text is not None:
                    self.run_worker(self._run("send", "-t", team, name, "-", text=text[1], host=entry.host))

            self.push_screen(TextDialog(f"Message to {name}:", keys="Enter: send   Esc: cancel"), written)

    def action_pause(self) -> None:
        """Hold the agent, or let it continue."""
        if entry := self._chosen():
            name, team = _names(entry)
            words = ("release", "--agent") if entry.agent.state == "held" else ("hold",)
            self.run_worker(self._run(*words, name, "-t", team, host=entry.host))

    def action_restart(self) -> None:
        if entry := self._chosen():
            name, team = _names(entry)
            if entry.runs:
                self._ask_first(f"Restart {name}?", "restart", name, "-t", team, host=entry.host)
            else:
                what = f"Start {name} again, with its last conversation?"
                self._ask_first(what, "resume", name, "-t", team, host=entry.host)

    def action_stop(self) -> None:
        if entry := self._chosen():
            name, team = _names(entry)
            self._ask_first(f"Stop {name}?", "stop", name, "-t", team, host=entry.host)

    def _ask_first(self, question: str, *words: str, host: str) -> None:
        def decided(decision: tuple[str, str] | None) -> None:
            if decision is not None:
                self.run_worker(self._run(*words, host=host))

        self.push_screen(Confirmation(question, f"relay {shlex.join(words)}"), decided)

    def action_inbox(self) -> None:
        if self._board is not None:
            self.push_screen(InboxDialog(self._board.inbox))

    def on_inbox_dialog_decided(self, event: InboxDialog.Decided) -> None:
        host = self._board.hosts.get(event.id, "") if self._board is not None else ""
        self.run_worker(self._run("inbox", event.action, event.id, host=host))

    def action_help(self) -> None:
        self.push_screen(Dialog("Keys", HELP, "Esc: back"))

    def action_fold(self) -> None:
        row = self.query_one("#list", ChoiceList).chosen
        if row is None:
            return
        if row.entry is not None:
            team = key(row.entry.agent.team)
            self._folded.add(team)
            self._draw(Fold(row.entry.group, team))
        elif isinstance(row.id, Fold):
            self._folded.discard(row.id.team)
            self._draw()

    def action_filter(self) -> None:
        words = self.query_one("#words", Input)
        words.display = True
        words.focus()

    def action_unfilter(self) -> None:
        words = self.query_one("#words", Input)
        words.value = ""
        words.display = False
        self.query_one(ChoiceList).focus()
        self._say("")

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "words":
            self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "words":
            event.input.display = bool(event.value)
            self.query_one(ChoiceList).focus()

    def action_leave(self, code: int) -> None:
        self.exit(code, return_code=code)

    def action_interrupt(self) -> None:
        self.action_leave(128 + signal.SIGINT)

    async def _run(self, *words: str, text: str = "", host: str = "") -> None:
        """Run a command of relay, and say what it did."""
        self._say(f"relay {shlex.join(words)} ...")
        self._say((await self._outcome(*words, text=text, host=host)).sentence)
        self._looks.now()

    async def _outcome(self, *words: str, text: str = "", host: str = "") -> CommandEnd:
        remote = self._remotes.get(host)
        try:
            return await (self._run_here if remote is None else remote.carry_out)(*words, input=text)
        except RelayError as error:
            return CommandEnd(error.exit_code, "", str(error))

    def _chosen(self) -> BoardEntry | None:
        row = self.query_one("#list", ChoiceList).chosen
        return None if row is None else row.entry


def _names(entry: BoardEntry) -> tuple[str, str]:
    return entry.agent.name, entry.agent.team


def _rule(text: str, columns: int) -> str:
    """Return a horizontal line with `text` in it."""
    text = cut(f"── {text} " if text else "", columns)
    return text + "─" * (columns - columns_of(text))


def _about(row: ListRow | None) -> str:
    if row is None:
        return ""
    if (entry := row.entry) is None:
        return "f unfolds its agents"
    agent = entry.agent
    age = duration(agent, time.time())
    parts = [agent.name, f"{state(agent)}{f' for {age}' if age else ''}", agent.agent, entry.branch]
    if agent.tokens is not None:
        cost = "" if agent.cost is None else f", ${agent.cost:,.2f}"
        parts.append(f"{brief(agent.tokens)} tokens{cost}")
    parts.append(_folder(agent.cwd))
    return "   ".join(one_line(part, 80) for part in parts if part)


def _folder(path: str) -> str:
    try:
        return str("~" / Path(path).relative_to(Path.home()))
    except ValueError:
        return path


def _words(entry: BoardEntry, columns: int) -> list[str]:
    """Return what is known of an agent whose screen cannot be shown."""
    lines = [item.line for item in entry.items] or [one_line(entry.line, None)]
    return [row for line in lines for row in textwrap.wrap(line, max(columns, 1))]
