"""The reader of an agent's usage: from its own transcripts, each line once, as they grow.

    hook events, Named ──→ files ──→ UsageFormat ──→ Charge ──by id──→ the use of each model

Only lines written in this run count: an agent that continues an old conversation has already paid for it, and
copies of old lines have old times.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from relay.agents import kinds
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.named_transcripts import Named, iso
from relay.agents.prices import Prices
from relay.agents.rate_limits import RateLimits
from relay.agents.tail import Tail
from relay.agents.usage import Charge, Spent, UsageFormat

BUDGET = 1 << 20
"""Maximum bytes that one call of `read` reads."""

_IDS = 20_000  # charges whose later records replace them

_FILES = 256
"""How many files are followed, besides those not yet read to the end."""

_BEGINS = frozenset({NativeName.SESSION_START, NativeName.PROMPT_SUBMIT})


class UsageReader:
    """The usage of one agent. It raises nothing.

    Call `event` for each hook event, before the hook is answered, and `read` on any other thread, until it
    returns False.

    kind:     the kind of agent that writes such transcripts (relay.agents.kinds); it has `usage`.
    began:    the beginning of the run, in seconds since the epoch.
    named:    what one run of an agent without hooks writes.
    followed: called with what `resume` needs, whenever another file is followed.
    """

    def __init__(
        self,
        kind: str,
        prices: Prices,
        *,
        began: float,
        named: Named | None = None,
        followed: Callable[[dict[str, Any]], None] = lambda fields: None,
    ) -> None:
        self._kind = kinds.find(kind)
        self._sums = _Sums(prices)
        self._began = began
        self._named = named
        self._followed = followed
        self._new: deque[tuple[str, Tail, str]] = deque()  # for the other thread
        self._known: dict[str, None] = {}  # those last named to `event`, the latest at the end
        self._files: dict[str, tuple[Tail, UsageFormat]] = {}
        self._left: dict[str, int] = {}  # files no longer followed, and where their unread part begins
        self._left_limits: RateLimits | None = None
        self._folders: set[Path] = set()  # of subagents' transcripts
        self._totals: set[str] = set()

    @property
    def models(self) -> dict[str, Spent]:
        """The use of each model since the run began."""
        return {model: spent for model, spent in dict(self._sums.models).items() if spent.tokens}

    @property
    def limits(self) -> RateLimits | None:
        """The newest rate limits that the files have reported since the run began; None: none."""
        told = [self._left_limits, *(lines.limits for _, lines in list(self._files.values()))]
        newest = max((limits for limits in told if limits), key=lambda limits: limits.at, default=None)
        return newest if newest is not None and newest.at >= self._began else None

    def event(self, event: NativeEvent) -> None:
        begins = event.name in _BEGINS and not self._kind.usage_is_timed
        main, own = event.transcript_path, ""
        if event.agent_id:
            given = event.raw.get("agent_transcript_path")
            own = given if isinstance(given, str) and given != main else ""
            own = own or self._kind.subagent_transcript(main, event.agent_id)
            begins = event.name is NativeName.SUBAGENT_START
        for path in (main, own):
            # Lines there before the answer to the first event of a conversation are older than it.
            self._follow(path, at_end=begins, session=event.session_id)

    def resume(self, followed: Sequence[Mapping[str, Any]]) -> None:
        """Continue with the files of an earlier reader, each from where that reader began."""
        for each in followed:
            self._began = min(self._began, float(each["began"]))
            self._follow(each["path"], offset=int(each["offset"]), session=each["session"])

    def read(self) -> bool:
        """Continue reading all files, at most BUDGET bytes. Return True if there is more."""
        self._find()
        budget = BUDGET
        since = iso(self._began) if self._named is None else self._named.since
        for tail, lines_of in list(self._files.values()):
            lines, used = tail.read(budget)
            budget -= used
            for line, _ in lines:
                for charge in lines_of.read(line):
                    if not (charge.time and charge.time < since):
                        self._sums.add(charge)
            if budget <= 0:
                return True
        if any(tail.behind for tail, _ in self._files.values()):
            return True
        self._forget()
        return False

    def _follow(self, path: str, *, session: str, at_end: bool = False, offset: int = 0) -> None:
        if not path.startswith(os.sep) or "\0" in path:
            return
        known = path in self._known
        self._known.pop(path, None)
        self._known[path] = None
        if known:
            return
        if len(self._known) > _FILES:
            del self._known[next(iter(self._known))]
        tail = Tail(Path(path), at_end and os.access(path, os.F_OK), offset)
        self._new.append((path, tail, session))
        self._followed({"path": path, "offset": tail.offset, "session": session, "began": self._began})

    def _find(self) -> None:
        """Open the files to follow, and those created since."""
        while self._new:
            path, tail, session = self._new.popleft()
            self._open(path, tail)
            if (folder := self._kind.subagent_folder(Path(path), session)) is not None:
                self._folders.add(folder)
        if self._named is not None:
            for path in self._named.find():
                self._open(path, Tail(Path(path)))
        for folder in sorted(self._folders):
            try:
                for found in sorted(folder.glob("*.jsonl")):
                    now = found.stat()
                    if now.st_mtime >= self._began and now.st_size != self._left.get(str(found)):
                        self._open(str(found), Tail(found))
            except OSError:
                continue  # its name is too long, for example

    def _open(self, path: str, tail: Tail) -> None:
        if path in self._files:
            return
        if (offset := self._left.pop(path, None)) is not None:
            tail = Tail(Path(path), offset=offset)
        if (lines := self._kind.usage(self._totals)) is not None:
            self._files[path] = tail, lines

    def _forget(self) -> None:
        """Stop following files that have not changed for longest, if there are too many."""
        if len(self._files) <= _FILES:
            return
        self._left_limits = self.limits
        tails = {path: tail for path, (tail, _) in self._files.items() if path not in self._known}
        whole = [path for path, tail in tails.items() if not tail.cut_off]
        for path in sorted(whole, key=lambda path: tails[path].changed)[: len(self._files) - _FILES]:
            self._left[path] = tails[path].offset
            del self._files[path]
        while len(self._left) > _IDS:
            del self._left[next(iter(self._left))]


class _Sums:
    """The use of each model, from charges that may be recorded more than once."""

    def __init__(self, prices: Prices) -> None:
        self.models: dict[str, Spent] = {}
        self._prices = prices
        self._charges: dict[str, Charge] = {}

    def add(self, charge: Charge) -> None:
        """Count a charge, replacing a smaller record of the same answer."""
        before = self._charges.pop(charge.id, None)
        named = before is not None and before.model == "" != charge.model
        if before is not None and not named and before.tokens.total >= charge.tokens.total:
            charge = before
        elif before is not None:
            self.models[before.model] = self._of(before.model) - self._spent(before)
        if charge is not before:
            self.models[charge.model] = self._of(charge.model) + self._spent(charge)
        self._charges[charge.id] = charge
        while len(self._charges) > _IDS:
            del self._charges[next(iter(self._charges))]

    def _of(self, model: str) -> Spent:
        return self.models.get(model, Spent())

    def _spent(self, charge: Charge) -> Spent:
        return self._prices.spent(charge.model, charge.tokens, charge.cost)
