"""The questions and events with which features reach rules and handlers."""

from __future__ import annotations

from relay.agents.hook_event import NativeName
from relay.eventbus import Event, Question
from relay.hooks.events import HandlerEvent
from relay.hooks.result import HookResult
from relay.rules.answer import RuleRun
from relay.rules.event import RuleEvent
from relay.rules.turn_end import Ending

Results = tuple[HookResult, ...]


class Consult(Question[Results]):
    """Run the rules for the event `rules`, then the handlers for the event `handlers`; either may be None.

    Rules run first, so handlers see a tool's input as changed by rules. Handlers are not asked about an
    action that rules have refused.
    ending: for a Stop, how the turn ends.
    """

    rules: RuleEvent | None = None
    handlers: HandlerEvent | None = None
    ending: Ending | None = None


class Observe(Event):
    """Run the rules for this event; nobody waits for them."""

    event: RuleEvent


class RuleEnded(Event):
    """A rule in the background has ended."""

    ran: RuleRun


class HasRules(Question[bool]):
    """Ask whether a rule for the event `name` is in force."""

    name: str


class GuardedEvents(Question[frozenset[NativeName]]):
    """Name the events of the agent's own hooks at which a rule or a handler may refuse something."""


class RulesChanged(Question[None]):
    """Other rules are in force from now on: record what hooks need to know while no session runs."""
