"""The grammar of directives in logical lines.

    @namespace:target body          at the beginning of a line, after the agent's bullets and indent
    @namespace:target <<<           many lines, up to a line that is
    ...                             >>>   or, where the agent draws none, up to the next directive
    \\@namespace:target              literal; \\\\@ stands for a literal \\@

Inside Markdown code fences (CommonMark 0.31, 4.5), and in a line that is drawn as code, nothing is a
directive.  A fence drawn as code ends with another drawn as code in the same column: some agents draw every
fence with three backticks, whatever it contains.  It also ends at a directive that is neither drawn as code
nor indented further, since its closing or opening fence may have scrolled by unseen.  A fence or a `<<<` that
is never closed ends with the turn.

Not everything that a terminal shows was said by the agent. There, hidden lines are ignored, a diff's mark is
not a bullet, and `directives` in relay.toml may limit namespaces to agents whose own record is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from relay.agents.profile import Profile
from relay.directives.directive import Directive
from relay.place import Place
from relay.readers.line import Line

BULLETS = "-*+•●◦○∙·▪▫■□◆◇►▸‣⁃⏺✦✧"
DECORATION = rf"(?:[ \t\u00a0]*+[{re.escape(BULLETS)}][ \t\u00a0]++){{0,3}}[ \t\u00a0]*+"
"""Regular expression for what may precede a directive: indent and bullets, not a quote's `>` or a prompt."""

ADDED_OR_REMOVED = "[-+]"
"""Regular expression for a diff line's mark, in the first column: agents indent their lists."""

_NAMESPACE = "[A-Za-z][A-Za-z0-9_-]*"
PREFIX = "@"
"""Begins a directive, unless a profile or the settings name something else."""

_OPENS = "<<<"
_CLOSES = ">>>"

_CODE_INDENT = 4
"""Blanks before a line that make it code, which closes no fence."""

_MAX_BLOCK = 256 * 1024
"""Characters in a `<<<` form after which it counts as unclosed; a message has at most 64 KB."""


def unescape(text: str, prefix: str = PREFIX) -> str:
    """Return `text` with one backslash removed from each run of them before `@namespace:`."""
    if "\\" not in text:
        return text
    # Only the start of a run is tried: each of its backslashes would take quadratic time.
    return re.sub(rf"(?<!\\)\\(\\*{re.escape(prefix)}{_NAMESPACE}:)", lambda match: match[1], text)


class PassedOver(NamedTuple):
    """A line that would be a directive, but for one thing.

    why: sign:    it follows a quote sign, or a prompt sign that the reader does not know
         hidden:  part or all of it is invisible
         diff:    it is a line of a diff
         joined:  the agent draws the lines of a paragraph as one, and this one holds several
         setting: `directives` in relay.toml
         record:  it may have been in the agent's own record, which was lost since
         typo:    its namespace, `said`, has no handler; `meant` has
    """

    line: Line
    why: Literal["sign", "hidden", "diff", "joined", "setting", "record", "typo"]
    said: str = ""
    meant: str = ""


class Grammar:
    """Lines in, directives out; one per agent, because fences and `<<<` forms span lines.

    knows:      return True for a namespace (in lower case) with a handler; others are ordinary text.
    meant:      return the namespace that an unknown one is a typo of, or "".
    prefix:     the character (or word) that begins a directive.
    decoration: regular expression of the bullets and indents with which the agent begins a paragraph.
    diff:       regular expression of a diff line's mark, which then is not a bullet; "" without diffs.
    acts_on:    return True for a known namespace that is acted on.
    joined:     the lines of a paragraph come as one.

    passed_over: lines that would be directives, but for one thing. The caller reports and removes them.
    """

    def __init__(
        self,
        knows: Callable[[str], bool],
        *,
        prefix: str = PREFIX,
        decoration: str = DECORATION,
        diff: str = "",
        acts_on: Callable[[str], bool] = lambda namespace: True,
        meant: Callable[[str], str] = lambda namespace: "",
        joined: bool = False,
    ) -> None:
        self._knows = knows
        self._meant = meant
        self._acts_on = acts_on
        another = rf"\s{re.escape(prefix)}(?P<namespace>{_NAMESPACE}):\S"
        self._another = re.compile(another) if joined else None
        self._prefix = prefix
        self._start = re.compile(
            rf"(?P<lead>{decoration}){re.escape(prefix)}(?P<namespace>{_NAMESPACE}):(?P<target>\S+)"
            r"(?:\s+(?P<body>.*))?\Z",
            re.DOTALL,
        )
        self._opens_fence = re.compile(
            rf"(?:{decoration})(?:\d{{1,9}}[.)]\s+)?(?P<mark>`{{3,}}|~{{3,}})(?P<info>.*)\Z", re.DOTALL
        )
        self._behind_sign = re.compile(
            rf"\s*(?:[^\w\s\\`'\"(]{{1,7}}\s+){{1,3}}{re.escape(prefix)}(?P<namespace>{_NAMESPACE}):\S"
        )
        of_diff = rf"(?:{diff})+{decoration}{re.escape(prefix)}(?P<namespace>{_NAMESPACE}):\S"
        self._diff = re.compile(of_diff) if diff else None
        self.passed_over: list[PassedOver] = []
        self._fence: _Fence | None = None
        self._block: _Block | None = None

    @classmethod
    def of_terminal(
        cls,
        knows: Callable[[str], bool],
        profile: Profile,
        *,
        prefix: str,
        acts_on: Callable[[str], bool] = lambda namespace: True,
        meant: Callable[[str], str] = lambda namespace: "",
    ) -> Grammar:
        """Return the grammar for what the terminal of an agent of this `profile` shows.

        A profile that says what precedes the agent's words needs no search for diffs.
        """
        joined = profile.block_end == "joined"
        if profile.decoration is not None:
            decoration = profile.decoration.pattern
            return cls(
                knows, prefix=prefix, decoration=decoration, acts_on=acts_on, meant=meant, joined=joined
            )
        # An agent indents its lists; a program that relay does not know may indent a diff.
        diff = ADDED_OR_REMOVED if profile.states else rf"[ \t]*{ADDED_OR_REMOVED}"
        return cls(knows, prefix=prefix, diff=diff, acts_on=acts_on, meant=meant, joined=joined)

    def state(self) -> dict[str, Any]:
        return {"fence": self._fence, "block": None if self._block is None else self._block.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self._fence = None if state["fence"] is None else _Fence(*state["fence"])
        if (saved := state["block"]) is not None:
            self._block = _Block(saved["namespace"], saved["target"], saved["indent"], Place(*saved["place"]))
            for text, time, place, *marks in saved["lines"]:
                self._block.add(Line(text, time, Place(*place), *marks))

    @property
    def within(self) -> bool:
        """True within a code fence or a `<<<` form, which the end of the turn closes."""
        return self._block is not None or self._fence is not None

    def line(self, line: Line) -> list[Directive]:
        """Take the next logical line; return the directives that it is or closes."""
        found: list[Directive] = []
        if self._block is not None and (
            line.gap or self._block.size > _MAX_BLOCK or (line.unmarked and self._follows_block(line))
        ):
            # The missing text may have closed the form: it ends with the last line before the gap.
            found += self._end_block(line.time, unclosed=True)
        if line.hidden:
            if self._block is None:
                self._pass_over(line, "hidden", self._start)
            return found
        if self._block is not None:
            if self._block.add(line):
                found += self._end_block(line.time, unclosed=False)
            return found
        if self._fence and self._prefix in line.text and self._fence.left_by(line):
            self._fence = None
        before = self._fence
        self._fence = _fence_after(self._opens_fence, before, line)
        if before or self._fence or line.code:
            return found
        if self._prefix not in line.text or self._pass_over(line, "diff", self._diff):
            return found
        started = self._start.match(line.text)
        if started is None:
            self._pass_over(line, "sign", self._behind_sign)
            return found
        namespace = started["namespace"].lower()
        target = started["target"].rstrip(",:;.")
        if not target:
            return found
        if not self._knows(namespace):
            if (meant := self._meant(namespace)) and self._acts_on(meant):
                said, right = f"{self._prefix}{namespace}:", f"{self._prefix}{meant}:"
                self.passed_over.append(PassedOver(line, "typo", said, right))
            return found
        if not self._acts_on(namespace):
            self.passed_over.append(PassedOver(line, "setting"))
        body = (started["body"] or "").strip()
        if self._holds_more(body):
            self.passed_over.append(PassedOver(line, "joined"))
            return found
        if body == _OPENS:
            self._block = _Block(namespace, target, len(started["lead"]), line.place)
            return found
        if self._acts_on(namespace):
            found.append(Directive(namespace, target, unescape(body, self._prefix), line.time, line.place))
        return found

    def _holds_more(self, body: str) -> bool:
        """Return True if other directives, or a form, are joined to the line that `body` is the rest of."""
        if self._another is None:
            return False
        found = self._another.finditer(body)
        return body.startswith(_OPENS) or any(self._knows(each["namespace"].lower()) for each in found)

    def _follows_block(self, line: Line) -> bool:
        """Return True if `line` is a directive outside the code fences in the open form."""
        if self._block is None or self._block.fence or line.code or line.hidden:
            return False
        if self._prefix not in line.text or (self._diff is not None and self._diff.match(line.text)):
            return False
        started = self._start.match(line.text)
        return started is not None and self._knows(started["namespace"].lower())

    def _pass_over(
        self, line: Line, why: Literal["sign", "hidden", "diff"], pattern: re.Pattern[str] | None
    ) -> bool:
        """Return True if `line` matches `pattern`, and note it if its namespace is known."""
        found = pattern.match(line.text) if pattern is not None else None
        if found is not None and self._knows(found["namespace"].lower()):
            self.passed_over.append(PassedOver(line, why))
        return found is not None

    def turn_end(self, now: float) -> list[Directive]:
        """End the agent's turn: return an open `<<<` form as a directive, forget an open fence."""
        found: list[Directive] = []
        while self._block is not None:
            rest = self._block.split_at_hidden_end()
            found += self._end_block(now, unclosed=rest is None)
            for line in rest or ():
                found += self.line(line)
        self._fence = None
        return found

    def forget_fence(self) -> None:
        """Forget an open fence: what comes next belongs to another turn."""
        self._fence = None

    def _end_block(self, now: float, *, unclosed: bool) -> list[Directive]:
        block, self._block = self._block, None
        if block is None or not self._acts_on(block.namespace):
            return []
        body = unescape(block.body(), self._prefix)
        return [Directive(block.namespace, block.target, body, now, block.place, unclosed)]


class _Block:
    """An open `<<<` form: its lines so far, and the code fence within it. place: of its last line."""

    _OPENS_FENCE = re.compile(r"\s*(?P<mark>`{3,}|~{3,})(?P<info>.*)\Z", re.DOTALL)

    def __init__(self, namespace: str, target: str, indent: int, place: Place) -> None:
        self.namespace = namespace
        self.target = target
        self.place = place
        self.size = 0
        self._indent = indent
        self.fence: _Fence | None = None
        self._lines: list[Line] = []
        self._hidden_end: int | None = None

    def state(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "target": self.target,
            "indent": self._indent,
            "place": self.place,
            "lines": self._lines,
        }

    def add(self, line: Line) -> bool:
        """Take a line; return True if it closes the form."""
        self.place = line.place
        if line.text.strip() == _CLOSES:
            if not self.fence:
                return True
            if self._hidden_end is None:
                self._hidden_end = len(self._lines)
        before = self.fence
        self.fence = _fence_after(self._OPENS_FENCE, before, line)
        if before and not self.fence:
            self._hidden_end = None
        self._lines.append(line)
        self.size += len(line.text) + 1
        return False

    def split_at_hidden_end(self) -> list[Line] | None:
        """End the form at a `>>>` that an unclosed fence hid; return the lines after it, or None."""
        if self._hidden_end is None:
            return None
        self.place = self._lines[self._hidden_end].place
        rest = self._lines[self._hidden_end + 1 :]
        del self._lines[self._hidden_end :]
        return rest

    def body(self) -> str:
        """Return the lines without the common indent that the first line's decoration gave them."""
        texts = [line.text.rstrip() for line in self._lines]
        depths = [len(text) - len(text.lstrip()) for text in texts if text]
        indent = min([self._indent, *depths])
        return "\n".join(text[indent:] for text in texts)


class _Fence(NamedTuple):
    """An open code fence. indent: of its mark. code: drawn as code."""

    mark: str
    indent: int
    code: bool

    def left_by(self, line: Line) -> bool:
        """Return True if `line`, which may be a directive, is past the fence, though nothing has closed it.

        Text in a fence drawn as code is drawn as code, too, or indented further. (The closing fence may have
        scrolled by unseen; or the opening one, if this fence only seems to open one.)
        """
        column = len(line.text) - len(line.text.lstrip())
        return self.code and not line.code and column <= self.indent

    def closed_by(self, line: Line) -> bool:
        mark = line.text.strip()
        if not mark.startswith(self.mark) or mark.strip(mark[0]):
            return False
        deeper = line.text.index(mark) - self.indent
        return line.code and deeper == 0 if self.code else deeper < _CODE_INDENT


def _fence_after(opens: re.Pattern[str], fence: _Fence | None, line: Line) -> _Fence | None:
    """Return the fence open after `line` if `fence` was open before. opens: matches an opening fence."""
    if "```" not in line.text and "~~~" not in line.text:
        return fence
    if fence is not None:
        return None if fence.closed_by(line) else fence
    match = opens.match(line.text)
    if match is None or (match["mark"][0] == "`" and "`" in match["info"]):  # inline code
        return None
    return _Fence(match["mark"], match.start("mark"), line.code)
