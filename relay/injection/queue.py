"""The injection queue of one agent: one text at a time, first in first out, each only when it is safe.

    submit ─→ queue ─→ held? draft? ─→ judge ─→ typist ─→ outcome
                          ▲             ▲
                  person(keys)     output(bytes), the kernel's word on what the program waits for

Driven by events: with an empty queue nothing runs.  While something waits, timers run for quiet periods
that are known, and otherwise look again ever more rarely, since a program that begins to read its
terminal tells nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from relay.errors import MessageRefused, RelayError
from relay.injection import body, waiting
from relay.injection.body import Style
from relay.injection.draft import Draft
from relay.injection.injection import Injection, Outcome, Result
from relay.injection.port import Port
from relay.injection.readiness import Readiness, Sight, Verdict, danger, judge
from relay.injection.typist import Typist
from relay.injection.waiting import Wait
from relay.profile import Profile

PERSON_PAUSE = 2.0
"""Seconds after the person's last key during which nothing is typed (design, section 6)."""

LOOK_MIN, LOOK_MAX = 0.001, 0.25
"""Seconds between two looks at a program that is not ready: a tenth of how long it has been, within these."""

_ENDS = 64  # marks remembered: more than fit on a screen, one a row
_BORDER = " \t│┃|║▏▕>❯›»"  # what input boxes draw around a text


class Injector:
    """Types injections into the agent behind `port`. All methods belong to the event loop's thread.

    on_typing:  called before the first byte of an injection is written. A RelayError that it raises keeps
                the injection from being typed (Result.UNTYPED).
    on_outcome: called once for each injection submitted.
    """

    def __init__(
        self,
        port: Port,
        profile: Profile,
        *,
        on_outcome: Callable[[Injection, Outcome], None],
        on_typing: Callable[[Injection], None] = lambda injection: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._port = port
        self._profile = profile
        self._on_outcome = on_outcome
        self._on_typing = on_typing
        self._clock = clock
        self._queue: deque[Injection] = deque()
        self._wake = asyncio.Event()
        self._draft = Draft()
        self._typist = Typist(port, clock, self._asking)
        self._typing: Injection | None = None
        self._held = False
        self._closed = False
        self._news = clock()  # when something last happened that may change the verdict
        self._typed = (
            clock()
        )  # when something was last typed, the sleep it found the program in, how texts ended
        self._typed_nap: tuple[int, int] | None = None
        self._typed_ends: deque[str] = deque(maxlen=_ENDS)
        self._typing_text = ""  # what is being typed now, its blanks collapsed

    def submit(self, injection: Injection) -> None:
        """Queue `injection`; `closing` goes before all others. One that cannot be typed is rejected now."""
        if self._closed:
            self._on_outcome(injection, Outcome(Result.UNTYPED, "the session has ended"))
            return
        try:
            body.check(injection)
        except MessageRefused as error:
            self._on_outcome(injection, Outcome(Result.REJECTED, str(error)))
            return
        if injection.kind == "closing":
            place = next(
                (n for n, other in enumerate(self._queue) if other.kind != "closing"), len(self._queue)
            )
            self._queue.insert(place, injection)
        else:
            self._queue.append(injection)
        self._notice()

    def person(self, data: bytes) -> None:
        """Note what the person typed, after it was written to the agent's terminal."""
        submitted = self._draft.submitted
        self._draft.type(data, self._clock(), canonical=self._port.tty().canonical)
        if self._draft.submitted != submitted:
            self._typist.submitted_by_person()
        if self._queue:
            self._notice()

    def output(self, data: bytes) -> None:
        """Note what the agent has put out, as soon as it was read."""
        if self._typing is not None:
            self._typist.output(data)
        if self._queue or self._typing is not None:
            self._notice()

    def hold(self) -> None:
        """Begin no further injection until `release`; one that is being typed is completed."""
        self._held = True

    def release(self) -> None:
        self._held = False
        self._notice()

    @property
    def verdict(self) -> Verdict:
        """Whether the agent can be typed into now, and why."""
        return judge(self._look()[0], self._profile)

    @property
    def pending(self) -> int:
        """Injections that wait or are being typed."""
        return len(self._queue) + (self._typing is not None)

    @property
    def obstacle(self) -> str | None:
        """Why the next injection is not typed now; None when nothing waits or nothing is in the way."""
        if not self._queue:
            return None
        if blocked := self._blocked():
            return blocked.reason
        verdict = self.verdict
        return None if verdict.state is Readiness.READY else verdict.reason

    def close(self) -> None:
        """The session ends: what waits is reported as not typed, and `run` returns."""
        self._closed = True
        while self._queue:
            self._on_outcome(self._queue.popleft(), Outcome(Result.UNTYPED, "the session ended first"))
        self._wake.set()

    async def run(self) -> None:
        """Type what is submitted until `close`. Cancelled in the middle of a text, it is uncertain."""
        while not self._closed:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            elif sight := await self._ready():
                await self._inject(self._queue.popleft(), sight)

    async def _inject(self, injection: Injection, sight: Sight) -> None:
        """Type `injection` now, the verdict on `sight` being ready, and report its outcome."""
        mark = body.nonce()
        try:
            parts = body.lay_out(injection, _style(sight), mark)
        except MessageRefused as error:
            self._on_outcome(injection, Outcome(Result.REJECTED, str(error)))
            return
        try:
            self._on_typing(injection)
        except RelayError as error:
            self._on_outcome(injection, Outcome(Result.UNTYPED, str(error)))
            return
        self._typing = injection
        outcome = Outcome(Result.UNCERTAIN, "the session ended while it was being typed")
        try:
            outcome = await self._type(parts, sight, mark)
        finally:
            self._typing = None
            self._on_outcome(injection, outcome)

    async def _type(self, parts: list[str], sight: Sight, mark: str) -> Outcome:
        doubts: list[str] = []
        for number, part in enumerate(parts):
            if number:
                # Each part is a line of its own to the program, which may answer the first with a question.
                again = await self._ready()
                if again is None:
                    return Outcome(
                        Result.UNCERTAIN, f"the session ended after {number} of {len(parts)} lines"
                    )
                sight = again
            self._typed_ends.append(body.closing_mark(mark))
            self._typing_text = " ".join(part.split())
            doubt = await self._typist.type(part, _style(sight), mark)
            self._typing_text = ""
            self._typed = self._news = self._clock()
            if doubt:
                doubts.append(doubt)
        return Outcome(Result.UNCERTAIN, doubts[0]) if doubts else Outcome(Result.INJECTED)

    async def _ready(self) -> Sight | None:
        """Wait until the agent is ready and nothing is in the way; None once closed or with nothing to do."""
        while not self._closed and (self._queue or self._typing is not None):
            self._wake.clear()
            if blocked := self._blocked():
                await self._sleep(blocked.wait)
                continue
            sight, nap = self._look()
            verdict = judge(sight, self._profile)
            if verdict.state is Readiness.READY:
                self._typed_nap = nap
                return sight
            again = min(max((self._clock() - self._news) / 10, LOOK_MIN), LOOK_MAX)
            # A program may begin to read its terminal before a known quiet period is over.
            await self._sleep(again if verdict.wait is None else min(again, verdict.wait))
        return None

    def _blocked(self) -> Verdict | None:
        """What keeps any text from being typed, whatever the agent does. `wait` None: until it is told."""
        if self._held:
            return Verdict(Readiness.WORKING, "injections are held")
        if not self._draft.empty:
            return Verdict(Readiness.WORKING, "you have a half-typed line in it")
        left = self._draft.last_typed + PERSON_PAUSE - self._clock()
        if left > 0:
            return Verdict(Readiness.WORKING, f"you typed within the last {PERSON_PAUSE:g} s", left)
        return None

    def _look(self) -> tuple[Sight, tuple[int, int] | None]:
        """What the terminal shows now, and the sleep in which the program reads it, if it does."""
        port = self._port
        tty = port.tty()
        # The kernel's word comes first: what the program printed before it slept is then either
        # analysed or pending. A program that prints, or is not in the foreground, needs no such look.
        looked = waiting.UNKNOWN
        if (
            tty.foreground == tty.agent_group
            and self._profile.inject != "never"
            and not port.output_pending()
        ):
            looked = waiting.look(tty.foreground)
        sight = Sight(
            tty=tty,
            wait=looked.wait,
            same=looked.nap is not None and looked.nap == self._typed_nap,
            quiet=self._clock() - max(port.last_output(), self._typed),
            output_pending=port.output_pending(),
            unwritten=port.unwritten(),
            bracketed_paste=port.bracketed_paste(),
            alternate=port.alternate(),
            unfinished=next(iter(self._others([port.unfinished()])), ""),
            rows=tuple(self._others(port.screen_text())),
        )
        return sight, looked.nap if looked.wait is Wait.READ else None

    def _others(self, rows: list[str]) -> list[str]:
        """`rows` without those that show what relay typed: a question in it is not the program's.

        While a text is being typed that is every row of it, later only one that ends in its mark: what a
        peer wrote must not make a dialog that reads the same invisible.
        """
        text, ends = self._typing_text, tuple(self._typed_ends)
        return [
            row
            for row in rows
            if not row.rstrip(_BORDER).endswith(ends)
            and not (text and row.strip(_BORDER) and " ".join(row.strip(_BORDER).split()) in text)
        ]

    def _asking(self) -> str | None:
        """Why Enter must not be pressed over what was just typed: it would answer something, or run it."""
        found = danger(self._look()[0], self._profile)
        return found.reason if found else None

    def _notice(self) -> None:
        self._news = self._clock()
        self._wake.set()

    async def _sleep(self, seconds: float | None) -> None:
        """Wait until something happens, at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass


def _style(sight: Sight) -> Style:
    if sight.tty.canonical:
        return Style.LINES
    return Style.PASTE if sight.bracketed_paste else Style.KEYS
