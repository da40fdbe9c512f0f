"""Say in a few words, for the sender, why an agent has not received a waiting message."""

from __future__ import annotations

from relay.control.sessions import UNRESPONSIVE, call, claims
from relay.errors import RelayError
from relay.home import Home
from relay.names import same
from relay.text import one_line, visible

PATIENCE = 2.0
"""Seconds to wait for the answer of the agent's session."""

_LONGEST = 200  # characters of a reason, which may quote the agent's screen

_PROMPTS = {
    "permission": "is at a permission prompt",
    "plan_approval": "asks for approval of its plan",
    "question": "asks a question",
}


def obstacle(home: Home, team: str, name: str) -> str | None:
    """Return what keeps `name` from receiving a message now, as a clause; None if nothing is known."""
    claim = next((each for each in claims(home, team) if same(each.name, name)), None)
    if claim is None:
        return f"{one_line(name)} is not running here"
    shown = one_line(claim.name)
    try:
        answer = call(claim.socket, {"op": "explain"}, PATIENCE)
    except RelayError:
        return f"{shown} is {UNRESPONSIVE}: its session does not answer"
    state, reason = str(answer.get("state")), one_line(visible(str(answer.get("reason"))), _LONGEST)
    bus, hindrance = str(answer.get("bus", "")), answer.get("obstacle")
    if bus and not bus.startswith("connected"):
        return f"{shown} is not on the bus: {one_line(bus, _LONGEST).rstrip('.')}"
    match state:
        case "prompting":
            known = _PROMPTS.get(str(answer.get("prompt")))
            return f"{shown} {known}" if known else f"{shown} has a question: {reason}"
        case "unsafe":
            return f"relay types nothing into {shown}: {reason}"
        case "ready":
            return f"{shown} is ready, but {one_line(str(hindrance), _LONGEST)}" if hindrance else None
        case "failed":
            return f"{shown} has failed: {reason}"
        case "working" if hindrance and str(hindrance).startswith("you "):
            return f"{shown} is working, and {one_line(str(hindrance), _LONGEST)}"
    return f"{shown} is {state}"
