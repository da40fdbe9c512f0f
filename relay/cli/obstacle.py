"""Say in a few words, for the sender, why an agent has not received a waiting message."""

from __future__ import annotations

from relay.control.sessions import UNRESPONSIVE, call, claims
from relay.dataclass import dataclass
from relay.errors import RelayError
from relay.home import Home
from relay.names import same
from relay.state.reasons import BUSY, UNSENT
from relay.supervision.states import in_words
from relay.text import one_line, visible

ANSWER_TIMEOUT = 2.0
"""Seconds to wait for the answer of the agent's session."""

_LONGEST = 200  # characters of a reason, which may quote the agent's screen

_PROMPTS = {
    "permission": "is at a permission prompt",
    "plan_approval": "asks for approval of its plan",
    "question": "asks a question",
}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A clause on why an agent does not receive a message now. lasts: that will not be over in a moment."""

    clause: str
    lasts: bool = False


def obstacle(home: Home, team: str, name: str) -> Obstacle | None:
    """Return what keeps `name` from receiving a message now; None: it is being delivered, as far as known."""
    claim = next((each for each in claims(home, team) if same(each.name, name)), None)
    if claim is None:
        return Obstacle(f"{one_line(name)} is not running here", lasts=True)
    shown = one_line(claim.name)
    try:
        answer = call(claim.socket, {"op": "explain"}, ANSWER_TIMEOUT)
    except RelayError:
        return Obstacle(f"{shown} is {UNRESPONSIVE}: its session does not answer", lasts=True)
    state, reason = str(answer.get("state")), one_line(visible(str(answer.get("reason"))), _LONGEST)
    bus, why = str(answer.get("bus", "")), one_line(str(answer.get("obstacle") or ""), _LONGEST)
    if bus and not bus.startswith("connected"):
        return Obstacle(f"{shown} is not on the bus: {one_line(bus, _LONGEST).rstrip('.')}")
    match state:
        case "working" | "ready" if why == BUSY:
            return Obstacle(f"{shown} is given another text first")
        case "working" if answer.get("waiting") and not why:
            return None  # it works because relay types
        case "prompting":
            known = _PROMPTS.get(str(answer.get("prompt")))
            return Obstacle(f"{shown} {known}" if known else f"{shown} has a question: {reason}", lasts=True)
        case "unsafe":
            return Obstacle(f"relay types nothing into {shown}: {reason}", lasts=True)
        case "ready":
            return Obstacle(f"{shown} is ready, but {why}") if why else None
        case "failed":
            return Obstacle(f"{shown} has failed: {reason}", lasts=True)
        case "working" if why.startswith("you "):
            return Obstacle(f"{shown} is working, and {why}")
        case "working" if why.startswith(UNSENT):
            return Obstacle(f"there is unsent text in the input of {shown}")
        case "backoff" | "waiting" | "held":  # the agent has ended, and its terminal waits
            return Obstacle(f"{shown} is {in_words(state)}: {reason}", lasts=True)
    return Obstacle(f"{shown} is {in_words(state)}", lasts=state == "stopped")
