"""The dialogs of `relay top`: a question and its choices, a text, a decision, the inbox, the keys."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from relay.messaging.user_inbox import Item
from relay.text import one_line, visible
from relay.top.choice_list import ChoiceList
from relay.top.rows import BOLD, RESET, ListRow


class Dialog(ModalScreen[tuple[str, str] | None]):
    """A box above the list. Its result is what to do and with what; None: nothing."""

    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > Vertical {
        width: 76; max-width: 100%; height: auto; max-height: 100%;
        border: round ansi_default; background: ansi_default; color: ansi_default; padding: 0 1;
    }
    Dialog VerticalScroll { height: auto; max-height: 75vh; background: ansi_default; }
    QuestionDialog VerticalScroll, TextDialog VerticalScroll { max-height: 40vh; }
    Dialog ChoiceList { height: auto; max-height: 30vh; background: ansi_default; margin: 1 0 0 0; }
    Dialog Input, Dialog Input:focus { background: ansi_default; border: round ansi_default; padding: 0; }
    Dialog .title { text-style: bold; margin: 0 0 1 0; }
    Dialog .keys { margin: 1 0 0 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss()", show=False)]

    def __init__(self, title: str, text: str = "", keys: str = "Esc: cancel") -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._keys = keys

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._title, markup=False, classes="title")
            if self._text:
                with VerticalScroll():
                    yield Static(self._text, markup=False)
            yield from self.choices()
            yield Static(self._keys, markup=False, classes="keys")

    def choices(self) -> ComposeResult:
        """Yield what is between the text and the keys."""
        yield from ()

    def on_choice_list_opened(self, event: ChoiceList.Opened) -> None:
        event.stop()  # the list below the dialog would take it for its own


class TextDialog(Dialog):
    """Asks for a line of text."""

    AUTO_FOCUS = "Input"

    def choices(self) -> ComposeResult:
        yield Input()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(("text", event.value) if event.value.strip() else None)


class Confirmation(Dialog):
    """Asks whether to do something: y does it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(('yes', ''))", show=False),
        Binding("n", "dismiss()", show=False),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__(title, text, "y: yes   n, Esc: no")


class QuestionDialog(Dialog):
    """Shows an agent's question as the agent drew it; a choice's number answers.

    asked: what `relay answer --json` prints.
    """

    AUTO_FOCUS = "ChoiceList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", show=False),
        Binding("t", "own_text", show=False),
    ]

    def __init__(self, name: str, asked: dict[str, Any]) -> None:
        self._takes_text = bool(asked["text"])
        self._options = [(str(each["number"]), visible(each["text"])) for each in asked["options"]]
        self._selected = str(asked["selected"])
        keys = ["number or Enter: answer"] if self._options else []
        keys += ["t: a text of your own"] if self._takes_text else []
        keys = keys or ["attach to answer"]
        super().__init__(
            f"{name} asks ({asked['kind']}):",
            "\n".join(map(visible, asked["lines"])),
            "   ".join([*keys, "Esc: not now"]),
        )

    def choices(self) -> ComposeResult:
        yield ChoiceList()

    def on_mount(self) -> None:
        rows = [ListRow(f"{number:>2}  {text}", number) for number, text in self._options]
        self.query_one(ChoiceList).show(rows, self._selected)

    def on_choice_list_opened(self, event: ChoiceList.Opened) -> None:
        event.stop()
        self.action_choose()

    def on_key(self, event: Key) -> None:
        if event.character in {number for number, _ in self._options}:
            event.stop()
            self.dismiss(("choice", event.character or ""))

    def action_own_text(self) -> None:
        if self._takes_text:
            self.dismiss(("text", ""))

    def action_choose(self) -> None:
        if row := self.query_one(ChoiceList).chosen:
            self.dismiss(("choice", str(row.id)))


class InboxDialog(Dialog):
    """Lists what waits for the user, and shows the chosen item."""

    DEFAULT_CSS = """
    InboxDialog > Vertical { width: 100%; height: 100%; }
    InboxDialog ChoiceList { max-height: 50%; }
    InboxDialog VerticalScroll { height: 1fr; max-height: 100%; border-top: solid ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "decide('show')", show=False),
        Binding("d", "decide('done')", show=False),
    ]

    AUTO_FOCUS = "ChoiceList"

    class Decided(Message):
        """The user has read an item, or is done with it. action: as for `relay inbox`."""

        def __init__(self, action: str, id: str) -> None:
            super().__init__()
            self.action = action
            self.id = id

    def __init__(self, items: Sequence[Item]) -> None:
        super().__init__("Your inbox", keys="Enter: read   d: done   Esc: back")
        self._items = items

    def choices(self) -> ComposeResult:
        yield ChoiceList()
        with VerticalScroll():
            yield Static(id="item", markup=False)

    def on_mount(self) -> None:
        self.show(self._items)

    def show(self, items: Sequence[Item]) -> None:
        self._items = items
        rows = []
        for item in items:
            when = "" if item.since is None else time.strftime("%d %b %H:%M", time.localtime(item.since))
            text = f"{when:12}  {one_line(item.title, None)}: {one_line(item.text, 300)}"
            rows.append(ListRow(text if item.read else f"{BOLD}{text}{RESET}", (item.id, item.line)))
        self.query_one(ChoiceList).show(rows)
        self.on_choice_list_chosen()

    def on_choice_list_chosen(self) -> None:
        item = self._chosen()
        text = "Nothing waits for you." if item is None else f"{visible(item.text)}\n\n{item.next}"
        self.query_one("#item", Static).update(text)

    def action_decide(self, action: str) -> None:
        if (item := self._chosen()) is not None and item.id:
            self.post_message(self.Decided(action, item.id))

    def _chosen(self) -> Item | None:
        row = self.query_one(ChoiceList).chosen
        return next((item for item in self._items if row and row.id == (item.id, item.line)), None)
