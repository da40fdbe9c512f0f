"""The texts given by the agent's own door (relay.agents.door), from the offer to the proof.

    open_for ─→ obstacle ─→ give: keep, offer ─┬→ proof: hook, record, agent ─→ injected
                                               └→ no proof ─→ settle ─→ another way, or uncertain
    what an earlier session has offered ─→ finish: settle, proof ─→ the same

The door gets texts only while the agent is idle; while it works, the replies to its hooks carry them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from relay.agents.door import OPEN, Door, NoDoor, Offer, OfferState
from relay.agents.events import HookReported
from relay.agents.hook_event import NativeName
from relay.agents.tail import Tail
from relay.dataclass import asdict, dataclass
from relay.errors import MessageRefused
from relay.eventbus import EventBus, handles
from relay.injection import layout
from relay.injection.events import EarlierInjectionEnded, InjectionDeferred, InjectionEnded
from relay.injection.gate import TypingGate
from relay.injection.injection import Injection, Outcome, Proof, Result
from relay.injection.late_texts import LateTexts
from relay.injection.layout import Style
from relay.injection.news import News
from relay.injection.prompt import Prompt, PromptComposer
from relay.injection.queue import HELD, InjectionQueue
from relay.injection.reply_delivery import TYPED
from relay.lifecycle import SessionBegan
from relay.state.events import PromptSubmitted
from relay.state.readiness import FAILURE, REPORT_LEASE, WORK_LEASE, Readiness, Verdict, working
from relay.state.view import AgentView
from relay.storage.progress import Progress
from relay.terminal.events import AgentExited, Notify

PROOF_TIMEOUT = 10.0
"""Seconds for the proof, after the inbox's own delay, counted while the agent is idle."""

OFFER_TIMEOUT = 5.0
"""Seconds for the door to answer."""

FAILURES = 2
"""Failures in a row after which the door is left for the rest of the run."""

PAUSE = 25.0
"""Seconds after the first failure in which texts take another way: an inbox may drop what it has just had."""

AGAIN_TIMEOUT = 5.0
"""Seconds for the mailbox to give a message again, which goes before later ones."""

BUSY_PAUSE = 0.5
"""Seconds until another offer to a door that was busy."""

LOOK_EVERY = 0.1
"""Seconds between two looks at what announces nothing: the agent's state and its transcript."""

SILENT = "nothing shows that the model has got it"
"""The failure of a door without a proof."""

_ENDS = frozenset({NativeName.STOP, NativeName.STOP_FAILURE, NativeName.SESSION_START})
_SITE, _LEFT = "site", "door left"
_BUDGET = 1 << 20  # bytes of the transcript that are read at once

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Given:
    """The text that the door is being given.

    records: the transcripts at the offer, with their sizes.
    outcome: as an earlier session saw it, but may not have recorded it.
    heard:   the agent's prompt hook has reported it. ended: the agent has ended.
    """

    offer: Offer
    injections: tuple[Injection, ...]
    records: dict[str, int]
    outcome: Outcome | None = None
    heard: bool = False
    ended: bool = False

    def kept(self, outcome: Outcome | None = None) -> dict[str, Any]:
        """Return what the next session needs."""
        return {
            "offer": asdict(self.offer),
            "injections": [asdict(each) for each in self.injections],
            "records": self.records,
            "outcome": None if outcome is None else asdict(outcome),
        }

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> _Given:
        """Return what was kept. Raise TypeError, ValueError or KeyError if that was not an offer."""
        outcome = kept["outcome"]
        return cls(
            Offer(**kept["offer"]),
            tuple(map(Injection.from_json, kept["injections"])),
            dict(kept["records"]),
            None if outcome is None else Outcome.from_json(outcome),
        )


class _Records:
    """The lines of the transcripts since an offer. sizes: theirs at the offer."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = sizes
        self._tails: dict[str, Tail] = {}

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of the transcript `path` since the last call."""
        if path:
            tail = self._tails.setdefault(path, Tail(Path(path), offset=self._sizes.get(path, 0)))
            yield from (line for line, _ in tail.read(_BUDGET)[0])


class _Trust:
    """The trust in the door.

    left:  why it is not used for the rest of the run; "" if it is.
    unfit: the ids of injections that are too long for it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._again = float("-inf")  # when it may be used after a failure
        self._next = float("-inf")  # when it may be asked after it was busy
        self._busy: float | None = None  # since when it is busy, though the agent's hooks say it is idle
        self.left = ""
        self.unfit = set[str]()

    @property
    def usable(self) -> bool:
        """True unless it has just failed."""
        return not self.left and self._clock() >= self._again

    @property
    def doubtful(self) -> bool:
        """True if it has contradicted the agent's hooks for long."""
        return self._busy is not None and self._clock() >= self._busy + PROOF_TIMEOUT

    @property
    def pause(self) -> float | None:
        """Seconds until it may be used after a failure; None if it is not paused."""
        left = self._again - self._clock()
        return left if left > 0 and not self.left else None

    @property
    def wait(self) -> float:
        """Seconds until a busy door may be asked again."""
        return self._next - self._clock()

    def failed(self, why: str) -> bool:
        """Record a failure; return True if the door is left because of it."""
        self._failures += 1
        self._again = self._clock() + PAUSE
        if self._failures >= FAILURES and not self.left:
            self.left = why
            return True
        return False

    def worked(self) -> None:
        self._failures = 0
        self.free()

    def free(self) -> None:
        """Record that the door and the hooks agree."""
        self._busy = None

    def busy(self, wait: float = 0.0) -> None:
        """Record that the door is busy, and is to be asked again in `wait` seconds."""
        self._busy = self._clock() if self._busy is None else self._busy
        self._next = self._clock() + wait


class _OfferedTurn:
    """The turn that began with an offer, of an agent whose hooks may not report its beginning."""

    def __init__(self, view: AgentView, clock: Callable[[], float]) -> None:
        self._view = view
        self._clock = clock
        self._began: float | None = None

    def begin(self) -> None:
        self._began = self._clock()

    def end(self) -> None:
        self._began = None

    def lasts(self) -> bool:
        """Return True until it has ended. Esc fires no Stop, but ends the agent's animation."""
        if self._began is not None and min(self._clock() - self._began, self._view.quiet()) >= REPORT_LEASE:
            self._began = None
        return self._began is not None


class DoorDelivery:
    """Gives the prompts of one agent to its door.

    ids: of what an earlier session had offered: this session finds out the outcome.
    """

    def __init__(
        self,
        bus: EventBus,
        door: Door,
        view: AgentView,
        queue: InjectionQueue,
        gate: TypingGate,
        composer: PromptComposer,
        news: News,
        progress: Progress,
        clock: Callable[[], float],
    ) -> None:
        self._bus = bus
        self._door = door
        self._queue = queue
        self._gate = gate
        self._composer = composer
        self._news = news
        self._progress = progress
        self._trust = _Trust(clock)
        self._late = LateTexts(queue, progress)
        self._given: _Given | None = None
        self._turn = _OfferedTurn(view, clock)
        self.ids: frozenset[str] = frozenset()

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        """Restore what an earlier session knew of the door, and what it had offered when it ended."""
        for note in self._progress.notes:
            if note["note"] == _SITE:
                self._door.site.session_id, self._door.site.transcript = note["session"], note["transcript"]
            elif note["note"] == _LEFT:
                self._trust.left = note["why"]
        self._late.restore()
        with suppress(TypeError, ValueError, KeyError):  # nothing was offered, or a kill cut it off
            self._given = _Given.from_json(self._progress.kept)
        if self._given is not None:
            self.ids = frozenset(each.id for each in self._given.injections)
            self._gate.view.given(self._given.offer.mark)

    @handles(HookReported)
    def reported(self, event: HookReported) -> None:
        """Follow the agent's own session, and its transcript."""
        its, site = event.event, self._door.site
        if its.name in _ENDS and not its.agent_id:
            self._turn.end()
        found = its.session_id or site.session_id, its.transcript_path or site.transcript
        if not its.agent_id and found != (site.session_id, site.transcript):
            site.session_id, site.transcript = found
            self._progress.note(_SITE, session=site.session_id, transcript=site.transcript)

    @handles(InjectionEnded)
    def ended(self, event: InjectionEnded) -> None:
        if event.outcome.route == "native":
            self._late.carried(event.injection.id)

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        if self._given is not None:
            self._given.ended = True
            self._news.notice()

    @property
    def active(self) -> tuple[Injection, ...]:
        """The injections that are being given as one text."""
        return () if self._given is None else self._given.injections

    @property
    def arrived(self) -> bool:
        """True if the agent has reported the text that is being given."""
        return self._given is not None and self._given.heard

    def description(self) -> str:
        """Describe the door for the user; "" if this kind of agent has none."""
        if isinstance(self._door, NoDoor):
            return ""
        if held := self._door.held():
            return f"{held}: {HELD}, and relay types the rest"
        left = f"it has failed {FAILURES} times: {self._trust.left}" if self._trust.left else ""
        silent = "" if self._gate.hooked else "its hooks are silent"
        if why := left or silent or self._door.closed():
            return f"{why}, so relay types"
        return OPEN

    def open_for(self, injection: Injection) -> bool:
        """Return True if `injection` goes through the door, as soon as there is no `obstacle`."""
        if injection.kind in TYPED or injection.id in self._trust.unfit:
            return False
        return self._gate.hooked and self._trust.usable and not self._door.closed()

    @property
    def doubtful(self) -> bool:
        """True if it says for long that the agent is busy, though its hooks do not: the screen decides."""
        return self._trust.doubtful

    def wake(self, wait: float | None) -> float | None:
        """Return the seconds to wait instead of `wait`: less if the door may be used before that."""
        again = BUSY_PAUSE if self.doubtful else self._trust.pause
        return min((each for each in (wait, again) if each is not None), default=None)

    def obstacle(self) -> Verdict | None:
        """Return what prevents an offer now; None if nothing does."""
        if self._given is None and self._turn.lasts():
            return working("its hooks have not reported the end of its turn", LOOK_EVERY)
        reported = self._gate.view.hooks
        state, age = ("ready", 0.0) if reported is None else (reported.state, reported.age)
        lease = {"ready": 0.0, "failed": FAILURE}.get(state, WORK_LEASE)
        idle = self._door.idle() if age >= lease else False
        if age < lease or (lease == WORK_LEASE and not idle):  # Esc fires no Stop, but the door knows
            self._trust.free()
            return working(f"its hooks say that it is {state}", LOOK_EVERY)
        if idle is False:
            self._trust.busy()
            return working("it says that it works, or shows a dialog", LOOK_EVERY)
        if idle and self._trust.wait <= 0:
            self._trust.free()
        if (left := max(self._trust.wait, self._door.pause())) > 0:
            return working("its inbox takes no more texts for a moment", left)
        return None

    def prompted(self, prompt: str) -> bool:
        """Record a prompt that the agent's hook reports; return True if the agent has already got it."""
        given = self._given
        if given is not None and given.offer.mark in prompt:
            given.heard = True
            self._news.notice()
        waiting, repeats = self._late.prompted(prompt)
        for injection in waiting:
            self._queue.discard(injection, _injected("hook"))
        return repeats

    def sender(self, prompt: str) -> str:
        """Return who has sent the reported `prompt`, if the agent says that another agent has; else ""."""
        given = self._given
        if given is None or given.offer.mark not in prompt or not self._door.foreign:
            return ""
        last = given.injections[-1]
        if last.quotes_others and not last.by_user:
            return ""
        who = "your user, with `relay send`" if last.by_user else "relay, which your user runs"
        mark = given.offer.mark.strip("[/]")
        return f"The text of [{mark}] comes from {who}, not from another session."

    async def give(self, prompt: Prompt) -> None:
        """Give `prompt`, which has begun, and end its injections; put back what was not given."""
        together = (*prompt.contexts, *prompt.injections)
        try:
            outcome = await self._offer(prompt, together)
        except MessageRefused as error:
            outcome = Outcome(Result.REJECTED, str(error))
        except BaseException:
            if self._given is None:
                self._queue.defer(prompt.injections)
            elif self._queue.closed:
                self._end(
                    together, _uncertain("the session ended before anything showed that the model has it")
                )
            raise  # otherwise the next session finds out
        if outcome is None:
            self._forget()
            self._queue.defer(prompt.injections)
        else:
            self._end(together, outcome)

    async def _offer(self, prompt: Prompt, together: tuple[Injection, ...]) -> Outcome | None:
        """Return the outcome of `prompt`; None if it is to be given again. Raise MessageRefused."""
        first, mark = prompt.injections[0], layout.mark_of(prompt.injections[0])
        (text,) = self._composer.lay_out(prompt, Style.PASTE, mark)
        if len(text.encode()) > self._door.limit:
            self._trust.unfit.add(first.id)
            return None
        if self._gate.obstacle(typing=True) or self.obstacle():  # the answers to MayBegin may have taken long
            return None
        from uuid import uuid4  # 2 ms of a session's start

        offer = Offer(str(uuid4()), text, layout.closing_mark(mark), first.source)
        self._given = _Given(offer, together, _sizes(self._door.site.transcript))
        self._progress.keep(self._given.kept())
        self._gate.view.given(offer.mark)
        self._bus.publish(PromptSubmitted(by_user=False))
        if not self._door.hook_proves:  # its hooks may not report the beginning
            self._turn.begin()
        return await self._outcome(self._given, await self._ask(self._door.offer(offer)))

    async def finish(self) -> None:
        """Find out the outcome of what an earlier session has offered, or give it again."""
        if (given := self._given) is None:
            return
        again = given.outcome is not None
        try:
            outcome = given.outcome
            if outcome is None:
                state = await self._ask(self._door.settle(given.offer))
                # What is withdrawn because a session has ended is no failure of the door.
                outcome = None if state is OfferState.REFUSED else await self._outcome(given, state)
        except BaseException:
            if self._queue.closed:
                self._end(given.injections, _uncertain("the session ended while it was being given"))
            raise
        if outcome is not None:
            self._end(given.injections, outcome, again=again)
            return
        self._forget()
        self._queue.expect(given.injections)
        for injection in given.injections:
            self._bus.publish(InjectionDeferred(injection))  # the mailbox gives its messages again
            if injection.kind != "message":
                self._queue.submit(injection)
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_TIMEOUT):  # a message may have been dropped meanwhile
                while self.ids - {each.id for each in self._queue}:
                    await self._news.wait(LOOK_EVERY)

    async def _outcome(self, given: _Given, state: OfferState) -> Outcome | None:
        """Return the outcome of an offer in `state`; None if it is to be given again, by any way."""
        if state is OfferState.BUSY:
            self._trust.busy(BUSY_PAUSE)
            return None
        if state is OfferState.REFUSED:
            self._fail("it refused a text")
            return None
        if state is not OfferState.DELIVERED:
            if proof := await self._proof(given):
                self._trust.worked()
                return _injected(proof)
            state = await self._ask(self._door.settle(given.offer))
        if state is OfferState.DELIVERED:
            self._trust.worked()
            return _injected("agent")
        if given.ended and self._door.hook_stops and not given.heard:
            return None  # its hook comes before its model
        self._fail(SILENT)
        if state is not OfferState.REFUSED:
            if not self._door.hook_stops:
                return _uncertain(f"its inbox took it, but {SILENT}")
            self._late.expect(given.offer.mark, given.injections)
        return None

    async def _proof(self, given: _Given) -> Proof:
        """Wait until something proves that the model has got what was given; return "" if nothing does."""
        reported = asyncio.ensure_future(self._door.delivered(given.offer))
        reported.add_done_callback(lambda _: self._news.notice())
        records, idle, looked = _Records(given.records), 0.0, self._bus.loop.time()
        try:
            while idle < PROOF_TIMEOUT + self._door.delay:
                if given.heard and self._door.hook_proves:
                    return "hook"
                if reported.done() and reported.exception() is None:
                    return "agent"
                lines = records.lines(self._door.site.transcript)
                if any(given.offer.mark in self._door.told(line) for line in lines):
                    return "record"
                if given.ended:
                    break
                await self._news.wait(LOOK_EVERY)
                before, looked = looked, self._bus.loop.time()
                waits = self.obstacle() or self._gate.view.verdict.state is Readiness.PROMPTING
                idle += 0.0 if waits else looked - before
        finally:
            reported.cancel()
        return ""

    async def _ask(self, answer: Coroutine[Any, Any, OfferState]) -> OfferState:
        """Return the door's answer, UNKNOWN if there is none in time."""
        try:
            async with asyncio.timeout(OFFER_TIMEOUT):
                return await answer
        except TimeoutError:
            return OfferState.UNKNOWN
        except Exception:  # noqa: BLE001 (logged; a text is never lost because of it)
            _log.exception("the agent's door")
            self._bus.publish(Notify("its inbox could not be used: see session.log."))
            return OfferState.UNKNOWN

    def _fail(self, why: str) -> None:
        if self._trust.failed(why):
            self._progress.note(_LEFT, why=why)
            self._bus.publish(
                Notify(f"its inbox has failed {FAILURES} times: {why}. relay types into it from now on.")
            )

    def _forget(self) -> None:
        """Forget what was given: it was not, or is given again."""
        if self._given is not None:
            self._given = None
            self._progress.keep({})

    def _end(self, injections: Sequence[Injection], outcome: Outcome, *, again: bool = False) -> None:
        given, self._given = self._given, None
        if given is not None:
            self._progress.keep(given.kept(outcome))
        for injection in injections:
            if again:
                self._bus.publish(EarlierInjectionEnded(injection, outcome))
            else:
                self._queue.end(injection, outcome)


def _injected(proof: Proof) -> Outcome:
    return Outcome(Result.INJECTED, "", "door", "user", proof)


def _uncertain(why: str) -> Outcome:
    return Outcome(Result.UNCERTAIN, why, "door", "user")


def _sizes(transcript: str) -> dict[str, int]:
    """Return the size of the file `transcript`, by its path."""
    try:
        return {transcript: Path(transcript).stat().st_size} if transcript else {}
    except OSError:
        return {}
