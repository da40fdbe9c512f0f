"""Starts and stops other agents for this one, and reports how they ended.

SpawnAgent, ReleaseAgent ─→ `relay spawn`, `relay release`, which ask the fleet file ─→ a sentence
the record of a child whose name is free again ─→ Inject ─→ noted in the record as reported

Only the sessions of a fleet that allows it have this feature.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relay.control.operations import operation
from relay.control.server import Answer, Request
from relay.control.sessions import claims
from relay.dataclass import replace
from relay.errors import NotAllowed, RelayError
from relay.eventbus import EventBus, answers, handles
from relay.home import Home
from relay.hooks.commands import ReleaseAgent, SpawnAgent
from relay.injection.events import EarlierInjectionEnded, Inject, InjectionEnded
from relay.injection.injection import Injection, Result
from relay.lifecycle import Identity
from relay.messaging.events import InHand
from relay.names import key, same
from relay.storage.journal import Journal, preview
from relay.supervision.records import AgentRecord, Records
from relay.supervision.states import ENDED
from relay.tasks import Tasks
from relay.terminal.events import AgentExited

CHILD_CHECK_EVERY = 2.0
"""Seconds between two checks of the agents that this one has started."""


class Spawner:
    """Starts and ends agents for one agent of the fleet file `fleet`."""

    def __init__(
        self,
        bus: EventBus,
        tasks: Tasks,
        journal: Journal,
        session: Identity,
        home: Home,
        fleet: Path,
        *,
        look: float = CHILD_CHECK_EVERY,
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._journal = journal
        self._session = session
        self._home = home
        self._fleet = fleet
        self._look = look
        self._records = Records(home)
        self._busy: set[str] = set()  # agents being started or ended: the answer reports the result
        self._told: set[str] = set()  # the ids of this session's reports
        self._over = False

    # Starting and ending.

    @answers(SpawnAgent)
    async def spawn(self, question: SpawnAgent, _: object) -> str:
        words = [question.name, question.command]
        about = {"agent": question.name, "command": question.command, "task": preview(question.task)}
        await self._report()  # how the last agent of that name has ended
        with self._handling(question.name):
            return await self._run("spawn", ["-f", str(self._fleet)], words, about, question.task)

    @answers(ReleaseAgent)
    async def release(self, question: ReleaseAgent, _: object) -> str:
        with self._handling(question.name):
            return await self._run("release", [], [question.name], {"agent": question.name})

    @operation("spawn")
    async def on_spawn(self, request: Request) -> Answer:
        name, command, task = (str(request.fields.get(field, "")) for field in ("name", "command", "task"))
        return {"text": await self.spawn(SpawnAgent(name, command, task), ())}

    @operation("dismiss")
    async def on_release(self, request: Request) -> Answer:
        return {"text": await self.release(ReleaseAgent(str(request.fields.get("name", ""))), ())}

    @contextmanager
    def _handling(self, name: str) -> Iterator[None]:
        if key(name) in self._busy:
            raise NotAllowed(f"{name} is being started or ended. Try again in a moment.")
        self._busy.add(key(name))
        try:
            yield
        finally:
            self._busy.remove(key(name))

    async def _run(
        self, command: str, options: list[str], words: list[str], about: dict[str, str], task: str = ""
    ) -> str:
        """Run `relay` in a process that outlives this one; return its output, or raise NotAllowed.

        task: its standard input, since every user of the machine can read command lines.
        """
        argv = [sys.executable, "-P", "-m", "relay", command, "--by", self._session.name]
        argv += ["-t", self._session.team, *options, "--", *words]
        try:
            done = await asyncio.to_thread(
                subprocess.run,
                argv,
                cwd=self._session.directory,
                input=task.encode("utf-8", "surrogateescape"),
                capture_output=True,
                start_new_session=True,
                check=False,
            )
        except (OSError, ValueError) as error:  # no process, or a NUL character in the agent's words
            raise RelayError(f"relay could not be started for it: {error}.") from None
        said = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).decode(
            "utf-8", "replace"
        )
        text = said.strip().removeprefix("relay: ")
        event = {"spawn": "spawned", "release": "spawn_released"}[command]
        self._journal.write(event if done.returncode == 0 else "spawn_refused", **about, text=preview(text))
        if done.returncode != 0:
            raise NotAllowed(text or f"`relay {command}` exited with {done.returncode}. See session.log.")
        return text

    # Reporting how they have ended.

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._look)
            await self._report()

    @handles(AgentExited)
    def exited(self, _: AgentExited) -> None:
        self._over = True  # the next agent is told

    async def _report(self) -> None:
        busy = set(self._busy)  # before the records are read: they may change while a request ends
        for record in await asyncio.to_thread(self._ended):
            id = _id(record)
            if self._over or key(record.name) in busy | self._busy or id in self._told:
                continue
            self._told.add(id)
            if id in await self._bus.gather(InHand()):
                continue  # an earlier session has reported it, and this one sees the outcome
            self._journal.write("spawn_ended", agent=record.name, reason=record.reason)
            self._bus.publish(Inject(Injection(id, _how(record), "relay", "notice")))

    def _ended(self) -> list[AgentRecord]:
        """Return the records of this agent's ended children whose end was not reported to it."""
        children = [record for record in self._children() if not record.reported]
        running = {key(claim.name) for claim in claims(self._home, self._session.team)} if children else ()
        return [record for record in children if key(record.name) not in running]

    def _children(self) -> list[AgentRecord]:
        records = self._records.all(self._session.team)
        return [record for record in records if same(record.parent, self._session.name)]

    @handles(InjectionEnded, EarlierInjectionEnded)
    def told(self, event: InjectionEnded) -> None:
        given = event.outcome.result in {Result.INJECTED, Result.UNCERTAIN}
        if given and event.injection.id.endswith(_SUFFIX):
            noting = asyncio.to_thread(self._reported, event.injection.id)
            self._tasks.spawn(noting, "noting that a child's end was told")

    def _reported(self, id: str) -> None:
        """Note in the record of the child called `id` that its end was reported."""
        for child in self._children():
            if _id(child) == id:
                self._records.change(
                    child.team,
                    child.name,
                    lambda record: replace(record, reported=record.reported or _id(record) == id),
                )


_SUFFIX = "-ended"


def _id(record: AgentRecord) -> str:
    """Return the id of the report on a child's end: the same in all sessions of its parent."""
    return record.session + _SUFFIX


def _how(record: AgentRecord) -> str:
    if record.phase not in ENDED:
        how = "its processes were killed, for example by a crash or a reboot. You can start it again"
    elif record.by in {"stop", "down"}:
        how = "the user has stopped it"
    else:
        how = f"it {record.reason}"
    return f"{record.name}, which you started, has ended: {how}."
