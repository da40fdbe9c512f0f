"""Generated screens: inputs boxed, ruled and bare, with dialogs and work above them or in their place.

    python tests/state/drawn.py [--apart] [-v]      scores the shipped profiles; -v names each miss

The rules were written with two thirds of these screens; the others (`Drawn.apart`, by a digest of the name)
were only checked once the rules were done.
"""

from __future__ import annotations

import functools
import sys
import textwrap
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from relay.agents import catalog
from relay.agents.profile import Profile
from relay.cli.inspect import inspect_screen
from relay.home import Home

_NOWHERE = Home(Path("/nonexistent"), Path("/nonexistent"), Path("/nonexistent"))
WIDTHS = (60, 80, 120, 200)


@functools.cache
def _profile(name: str) -> Profile:
    return catalog.load(name, _NOWHERE)


@dataclass(frozen=True)
class Drawn:
    """One screen. states: acceptable verdicts; the first is best."""

    profile: str
    name: str
    states: tuple[str, ...]
    text: str

    @property
    def apart(self) -> bool:
        return zlib.crc32(f"{self.profile} {self.name}".encode()) % 3 == 0


# -- inputs -------------------------------------------------------------------------------------------------


def boxed(text: str, width: int, corners: str = "╭╮╰╯", indent: int = 0) -> list[str]:
    """Return a box as wide as the screen; `text` may have several rows."""
    pad, inner = " " * indent, width - 2 - 2 * indent
    rows = [f"{pad}│ {row:<{inner - 1}}│" for row in text.split("\n")]
    return [
        f"{pad}{corners[0]}{'─' * inner}{corners[1]}",
        *rows,
        f"{pad}{corners[2]}{'─' * inner}{corners[3]}",
    ]


def ruled(text: str, width: int, above: str = "─", below: str = "") -> list[str]:
    return [above * width, *text.split("\n"), (below or above) * width]


def entry(form: str, glyph: str, text: str, width: int) -> list[str]:
    """Return an agent's input that contains `text`, with further rows below its first."""
    room = width - 8
    lines = [piece for line in text.split("\n") for piece in (textwrap.wrap(line, room) or [""])] or [""]
    shown = "\n".join([f"{glyph} {lines[0]}".rstrip(), *(f"  {line}".rstrip() for line in lines[1:])])
    match form:
        case "boxed":
            return boxed(shown, width)
        case "square":
            return boxed(shown, width, "┌┐└┘")
        case "inset":
            return boxed(shown, width, indent=1)
        case "dashed":
            return ruled(shown, width)
        case "heavy":
            return ruled(shown, width, "━")
        case "ascii":
            return ruled(shown, width, "-")
        case "blocks":
            return ruled("\n".join(f" {row}" for row in shown.split("\n")), width, "▄", "▀")
    return shown.split("\n")  # bare


# -- what is above ------------------------------------------------------------------------------------------

BULLETS = {
    "claude": ("● ", "  "),
    "codex": ("• ", "  "),
    "gemini": ("✦ ", "  "),
    "qwen": ("  ✦ ", "    "),
    "generic": ("", ""),
}
"""What precedes the first row of an answer, and what precedes the others."""

TYPED = {"claude": "❯ ", "codex": "› ", "gemini": " > ", "qwen": "  > ", "generic": "You said: "}


def printed(profile: str, text: str) -> str:
    """Return `text` as the agent prints it."""
    first, other = BULLETS[profile]
    return first + text.replace("\n", f"\n{other}")


def answer(profile: str) -> str:
    last = "\n\n  Worked for 3s • 06:24" if profile == "codex" else ""
    words = printed(profile, "I have mended the fence.\nIt stands.")
    return f"{TYPED[profile]}mend it\n\n{words}{last}"


LISTED = (
    "There are three ways:\n\n1. Paint it\n2. Nail it\n3. Leave it\n\nDo you want me to paint it, or nails?"
)
DIALOGS = {
    "numbered": " Do you want to proceed?\n ❯ 1. Yes\n   2. Yes, and do not ask again\n   3. No",
    "numbered-keys": " Apply this change?\n\n › 1. Yes (y)\n   2. No (esc)\n\n"
    " Press enter to confirm or esc to cancel",
    "dots": " Allow execution of: 'touch'?\n\n ● 1. Allow once\n   2. Allow always\n   3. No (esc)",
    "deep": "    Claude wants to exit plan mode\n\n    ❯ 1. Yes, and switch\n      2. No, keep planning",
    "yes-no": " Overwrite fence.py? [y/N]",
    "words": " Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]:",
    "unmarked": " Do you want to run this command?\n   1. Yes\n   2. No",
    "plain-list": " ? Which template?\n ❯ TypeScript\n   JavaScript\n ↑↓ navigate • ⏎ select",
    "buttons": " △ Permission required\n   touch made.txt\n\n   Allow once   Allow always   Reject",
    "keys": " Bash(touch made.txt)\n\n Enter to approve · Esc to cancel",
    "radio": " ◆ Install dependencies?\n │ ● Yes / ○ No",
}
WORK = {
    "interrupt": "✻ Mending… (12s · ↓ 1.2k tokens · esc to interrupt)",
    "braille": " ⠙ Thinking... (esc to cancel, 3s)",
    "paren": "• Working (4s • esc to interrupt)",
    "list": "✽ Mending the fence… (31s · ↓ 2.1k tokens)\n"
    "  ⎿  ☒ Look at the fence\n     ☒ Find the hammer\n     ☐ Find nails\n     ☐ Nail the first board\n"
    "     ☐ Nail the second board\n     ☐ Nail the third board\n     ☐ Paint it\n     ☐ Tell Bob",
    "bare-interrupt": "  esc to interrupt",
    "queued": "⠹ Working... (7s · esc to cancel)\n\n  paint it too",
}
PLACEHOLDERS = {
    "claude": ('Try "fix lint errors"', 'Try "how do I log an error?"'),
    "codex": ("Ask Codex to do anything", "Explain this codebase", "Summarize recent commits"),
    "gemini": ("  Type your message or @path/to/file",),
    "qwen": ("  Type your message or @path/to/file",),
    "generic": ("Type your message...", "Ask anything…", "Send a message (/? for help)"),
}
FOOTERS = {
    "claude": "  ? for shortcuts",
    "codex": "  gpt-5 high · 100% context left · ~/project",
    "gemini": " ~/project     no sandbox     gemini-2.5-pro (99% context left)",
    "qwen": "  ? for shortcuts",
    "generic": "  ctrl+c to quit · /help",
}
GLYPHS = {"claude": "❯>", "codex": "›", "gemini": ">", "qwen": ">", "generic": "❯>›"}
FORMS = {
    "claude": ("boxed", "dashed", "square", "heavy", "bare"),
    "codex": ("bare", "boxed", "dashed", "inset"),
    "gemini": ("boxed", "blocks", "dashed", "bare"),
    "qwen": ("boxed", "dashed", "square", "bare"),
    "generic": ("boxed", "dashed", "heavy", "square", "inset", "ascii", "bare"),
}
LONG = "steady rain falls on quiet hills while small boats wait near grey stone walls " * 7
DRAFTS = {
    "words": "half a line of the user's",
    "long": LONG[:500],
    "lines": "line one\nline two\nline three",
    "pasted": "[Pasted text #1 +12 lines]",
    "asks": "shall we press esc to cancel? [y/n]",
}


def _above(text: str, width: int) -> list[str]:
    return [row[:width] for row in text.split("\n")]


def _dialog(form: str, text: str, width: int) -> list[str]:
    rows = _above(text, width - 4)
    if form == "boxed":
        return boxed("\n".join(["", *rows, ""]), width)
    if form == "dashed":
        return ["─" * width, *rows]
    if form == "between":
        return ["─" * width, *rows, "─" * width]
    return rows


def drawn() -> Iterator[Drawn]:
    """Yield every screen; each combination of form and width could occur."""
    turn = 0
    for profile in FORMS:
        for form, glyph in product(FORMS[profile], GLYPHS[profile]):
            footer = FOOTERS[profile]

            def screen(
                above: str, text: str, *, name: str, states: tuple[str, ...], profile: str = profile,
                form: str = form, glyph: str = glyph, footer: str = footer,
            ) -> Drawn:  # fmt: skip
                nonlocal turn
                turn += 1
                width = WIDTHS[turn % len(WIDTHS)]
                rows = [*_above(above, width), "", *entry(form, glyph, text, width), footer[:width]]
                whole = f"{name}-{form}-{ord(glyph):x}-{width}"
                return Drawn(profile, whole, states, "\n".join(["# title: ", *rows]) + "\n")

            above = answer(profile)
            yield screen(above, "", name="empty", states=("ready",))
            yield screen(printed(profile, LISTED), "", name="list", states=("ready",))
            for number, placeholder in enumerate(PLACEHOLDERS[profile]):
                yield screen(above, placeholder, name=f"placeholder-{number}", states=("ready",))
            for what, draft in DRAFTS.items():
                if not (form == "bare" and what in ("long", "lines")):
                    yield screen(above, draft, name=f"draft-{what}", states=("working",))
            for what, dialog in DIALOGS.items():
                prompting = ("prompting", "working")
                yield screen(f"{above}\n\n{dialog}", "", name=f"above-{what}", states=prompting)
            for what, work in WORK.items():
                yield screen(f"{above}\n\n{work}", "", name=f"work-{what}", states=("working",))
            stale = f"✻ Mending… (12s · ↓ 1.2k tokens)\n\n{above.partition(chr(10) * 2)[2]}"
            if profile == "claude":
                yield screen(stale, "", name="stale-spinner", states=("ready",))
        for what, form in product(DIALOGS, ("boxed", "dashed", "between", "bare")):
            turn += 1
            width = WIDTHS[turn % len(WIDTHS)]
            rows = [*_above(answer(profile), width), "", *_dialog(form, DIALOGS[what], width)]
            name = f"dialog-{what}-{form}-{width}"
            yield Drawn(profile, name, ("prompting",), "\n".join(["# title: ", *rows]) + "\n")


def judged(one: Drawn) -> str:
    return str(inspect_screen(one.text, _profile(one.profile)).state)


def main() -> None:
    verbose = "-v" in sys.argv
    found: Counter[tuple[str, str]] = Counter()
    for one in drawn():
        if one.apart != ("--apart" in sys.argv):
            continue
        state = judged(one)
        kind = "right" if state in one.states else "DANGEROUS" if state == "ready" else "other"
        found[one.profile, kind] += 1
        if verbose and kind != "right":
            print(f"{kind} {one.profile} {one.name}: {state}, not {one.states[0]}")
    for profile in FORMS:
        print(profile, {kind: count for (name, kind), count in found.items() if name == profile})


if __name__ == "__main__":
    main()
