"""A session in miniature, for the tests of handlers; pytest has it as the fixture `relay_session`.

def test_only_a_person_deploys_to_production(relay_session):
    session = relay_session("relay.config.py")
    assert session.say("@deploy:production v1").injected == ["Only a person deploys to production."]
    outcome = session.fire("tool_pre", tool_name="Bash", tool_input={"command": "ls"})
    assert outcome.decision.action == "continue"

No agent, terminal or broker is started. Memories are kept in a folder of the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

from relay import builtin
from relay.dataclass import dataclass
from relay.directives.directive import Directive
from relay.directives.grammar import Grammar
from relay.errors import UnknownRecipient
from relay.eventbus import EventBus, answers, handles
from relay.hooks import config_file
from relay.hooks.commands import HandlerPrinted, HandlerProblem, ListMembers, Member, Problem, SendMessage
from relay.hooks.config import RelayConfig
from relay.hooks.context import Context, History, MemoryService
from relay.hooks.events import EVENTS, HandlerEvent, event_names
from relay.hooks.registry import Registry
from relay.hooks.result import Decision, HookResult, decide, injected
from relay.hooks.runner import DirectiveOutcome, Runner
from relay.injection.events import Inject
from relay.memory.config import MemoryConfig
from relay.memory.embedded import EmbeddedBackend
from relay.memory.store import MemoryStore
from relay.message import Message, OutgoingMessage, State
from relay.names import suggest
from relay.place import TERMINAL, Place
from relay.readers.line import Line

HANDLER_TIMEOUT = 30.0
"""Seconds that a handler may take, and then what it has left running."""


class Surroundings:
    """The team and the agent around the handlers: records their messages, injections and problems.

    members: the other agents of the team.
    """

    def __init__(self, members: Collection[Member]) -> None:
        self.bus = EventBus()
        self.bus.add(self)
        self.members = list(members)
        self.sent: list[OutgoingMessage] = []
        self.injected: list[str] = []
        self.problems: list[Problem] = []
        self.printed: list[str] = []

    @handles(Inject)
    def inject(self, event: Inject) -> None:
        self.injected.append(event.injection.text)

    @answers(SendMessage)
    async def send(self, question: SendMessage, _: object) -> tuple[Message, ...]:
        message = question.message
        known = [member.name for member in self.members]
        if message.to == "*":
            receivers = known
        elif message.to.startswith("#") or message.to in known:
            receivers = [message.to]
        else:
            hint = suggest(message.to, known)
            raise UnknownRecipient(f"nobody in the team is called {message.to!r}.", hint)
        self.sent.append(message)
        state = State.QUEUED if question.wait is None else State.INJECTED
        return tuple(Message(f"id-{to}", "", to, message.body, 0.0, state) for to in receivers)

    @answers(ListMembers)
    async def list(self, question: ListMembers, _: object) -> tuple[Member, ...]:
        return tuple(each for each in self.members if question.name in {None, each.name})

    @handles(HandlerProblem)
    def report(self, event: HandlerProblem) -> None:
        self.problems.append(event.problem)

    @handles(HandlerPrinted)
    def note(self, event: HandlerPrinted) -> None:
        self.printed.append(event.text)


@dataclass(frozen=True, slots=True)
class HandlerOutcome:
    """The outcome of a directive or an event.

    returned: one result for each handler and each text that it injected, in firing order.
    injected: the texts for the agent, in order; those last that came after the handlers had returned.
    decision: the handlers' combined decision about a tool call or a prompt.
    errors:   for the agent that wrote the directive.
    sent:     the messages that were sent.
    problems: the handlers' faults, each once.
    printed:  what handlers printed.
    """

    returned: tuple[HookResult, ...]
    injected: list[str]
    decision: Decision
    errors: tuple[str, ...]
    sent: list[OutgoingMessage]
    problems: list[Problem]
    printed: list[str]


class HandlerSession:
    """A session with the built-in handlers, and those that are loaded.

    folder:  the agent's working folder. members: the other agents of the team. env: the agent's environment.
    history: what `ctx.output` and `ctx.messages` show; append to its lists.
    memory:  the settings that `ctx.memory.config` shows.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "Alice",
        members: Collection[str] = ("Bob",),
        env: Mapping[str, str] | None = None,
        task: str | None = None,
    ) -> None:
        self.folder = folder
        self.registry = Registry()
        builtin.install(self.registry)
        self.history = History()
        self.memory = MemoryConfig()
        self.members = [Member(each, True) for each in members]
        self.store = MemoryStore(EmbeddedBackend(folder / "memory.db"), "team", name)
        self._name = name
        self._env = dict(env or {})
        self._task = task

    def load(self, source: Path | str | RelayConfig) -> None:
        """Add the handlers of a file such as relay.config.py, trusted or not, or of a RelayConfig.

        Raise ConfigError, with the line, for a mistake.
        """
        if isinstance(source, RelayConfig):
            source.apply(self.registry, self.registry)
            self.memory = source.memory_config() or self.memory
            return
        loaded = config_file.load(config_file.read(Path(source).absolute()), self.registry)
        self.registry.include(loaded.registry)
        self.memory = loaded.memory or self.memory

    def say(self, text: str) -> HandlerOutcome:
        """Run the handlers of the first directive in what the agent says, such as "@deploy:staging v1".

        Raise ValueError if there is none in it.
        """
        found = directive(text)
        outcomes: list[DirectiveOutcome] = []

        async def scene(runner: Runner, ctx: Context, _: Surroundings) -> None:
            outcomes.append(await runner.dispatch(found, ctx))

        around = self.run(scene)
        return _outcome(outcomes[0], around)

    def fire(self, event: str | HandlerEvent, **fields: object) -> HandlerOutcome:
        """Run the handlers of an event, given by its name and fields (docs/HOOKS.md). Raise ConfigError."""
        if isinstance(event, str):
            event = EVENTS[event_names(event)[0]](**fields)
        fired = event
        results: list[HookResult] = []

        async def scene(runner: Runner, ctx: Context, _: Surroundings) -> None:
            results.extend(await runner.fire(fired, ctx))

        around = self.run(scene)
        return _outcome(DirectiveOutcome(tuple(results)), around)

    def run(
        self,
        scene: Callable[[Runner, Context, Surroundings], Awaitable[object]],
        *,
        timeout: float = HANDLER_TIMEOUT,
    ) -> Surroundings:
        """Run `scene` on a new event loop, and what it left running; return what happened."""

        async def play() -> Surroundings:
            around = self.surroundings()
            runner = Runner(self.registry, around.bus, timeout=timeout)
            try:
                await scene(runner, self.context(around), around)
                while left := asyncio.all_tasks() - {asyncio.current_task()}:
                    if not (await asyncio.wait(left, timeout=HANDLER_TIMEOUT))[0]:
                        raise TimeoutError(f"{len(left)} calls did not end within {HANDLER_TIMEOUT:g} s")
            finally:
                runner.close()
            return around

        return asyncio.run(play())

    def surroundings(self) -> Surroundings:
        """Return new surroundings for the next run."""
        return Surroundings(self.members)

    def context(self, around: Surroundings) -> Context:
        return Context(
            agent_id=f"{self._name.lower()}-1",
            agent_name=self._name,
            session_id="session-1",
            working_dir=self.folder,
            env=self._env,
            task=self._task,
            bus=around.bus,
            memory=MemoryService(self.store, self.memory),
            history=self.history,
        )

    def close(self) -> None:
        """Close its memories."""
        self.store.close()


def directive(text: str) -> Directive:
    """Return the first directive in a text of an agent. Raise ValueError if there is none."""
    grammar = Grammar(lambda _: True)
    lines = [Line(line, 0.0, Place(TERMINAL, 0, number)) for number, line in enumerate(text.splitlines())]
    found = [each for line in lines for each in grammar.line(line)] + grammar.turn_end(0.0)
    if not found:
        raise ValueError(f"there is no directive such as '@deploy:staging v1' in {text!r}")
    return found[0]


def _outcome(found: DirectiveOutcome, around: Surroundings) -> HandlerOutcome:
    returned = found.results
    return HandlerOutcome(
        returned,
        [*injected(returned), *around.injected],
        decide(returned),
        found.errors,
        around.sent,
        around.problems,
        around.printed,
    )
