"""The usage log: what each turn of each agent has used, in every session of a home.

    UsageTracker ─→ UsageLog ─→ usage.jsonl, .1, .2 ...      (`relay usage` reads them)

An entry has the use since the one before, so the use over any time is a sum of entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from relay.agents.rate_limits import RateLimits
from relay.agents.usage import Spent, Tokens, number
from relay.dataclass import asdict, dataclass, field
from relay.eventbus import EventBus
from relay.storage import journal
from relay.storage.journal import Journal

EVENT = "usage"

GENERATIONS = 9
"""Full files (relay.storage.journal.MAX_BYTES each) kept beside the current one."""


@dataclass(frozen=True, slots=True)
class UsageEntry:
    """The use of a session since its last entry.

    time:    when it was written, in seconds since the epoch.
    session, name, team: of the agent. agent: its kind. account: whose limits it uses.
    turns:   begun since the last entry.
    models:  the use of each model.
    limits:  of the account, if others were reported since the last entry.
    """

    time: float
    session: str
    name: str
    team: str
    agent: str
    account: str
    turns: int = 0
    models: Mapping[str, Spent] = field(default_factory=dict)
    limits: RateLimits | None = None


class UsageLog:
    """Appends the entries of one session."""

    def __init__(
        self,
        path: Path,
        session: str,
        name: str,
        team: str,
        *,
        agent: str,
        account: str,
        bus: EventBus | None = None,
    ) -> None:
        self._journal = Journal(path, session, name, bus, generations=GENERATIONS)
        self._path = path
        self._session = session
        self._about = {"team": team, "agent": agent, "account": account}

    def write(self, turns: int, models: Mapping[str, Spent], limits: RateLimits | None = None) -> None:
        """Append an entry. Raise nothing."""
        used = {
            model: {"tokens": asdict(spent.tokens), "cost": spent.cost, "unpriced": spent.unpriced}
            for model, spent in models.items()
        }
        told = {} if limits is None else {"limits": limits.public()}
        self._journal.write(EVENT, **self._about, turns=turns, models=used, **told)

    def written(self) -> tuple[int, dict[str, Spent]]:
        """Return the turns, and the use of each model, in the entries of this session so far."""
        turns, models = 0, dict[str, Spent]()
        for entry in read(self._path, lambda entry: entry.session == self._session):
            turns += entry.turns
            for model, spent in entry.models.items():
                models[model] = models.get(model, Spent()) + spent
        return turns, models


def read(path: Path, wanted: Callable[[UsageEntry], bool] = lambda entry: True) -> Iterator[UsageEntry]:
    """Yield the entries that are `wanted`, oldest first. Skip damaged ones."""
    for given in journal.read(path, GENERATIONS):
        if given.get("event") == EVENT and (entry := _entry(given)) is not None and wanted(entry):
            yield entry


def _entry(given: Mapping[str, Any]) -> UsageEntry | None:
    time, models = given.get("time"), given.get("models")
    texts = [given.get(key) for key in ("session", "name", "team", "agent", "account")]
    if not isinstance(time, int | float) or not isinstance(models, dict):
        return None
    session, name, team, agent, account = (each if isinstance(each, str) else "" for each in texts)
    used = {str(model): _spent(each) for model, each in models.items() if isinstance(each, dict)}
    turns, limits = number(given.get("turns")), RateLimits.from_json(given.get("limits"))
    return UsageEntry(float(time), session, name, team, agent, account, turns, used, limits)


def _spent(given: Mapping[str, Any]) -> Spent:
    tokens, cost = given.get("tokens"), given.get("cost")
    known = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < 1e9
    counted = Tokens.of(tokens) if isinstance(tokens, dict) else Tokens()
    return Spent(counted, float(cost) if known else 0.0, number(given.get("unpriced")))  # type: ignore[arg-type]
