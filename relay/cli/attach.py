"""Attach this terminal to a running agent, or view the agent's terminal.

relay shows the last 2,000 lines of scrollback, redraws the screen, and resizes the agent to your terminal.
Ctrl-] and then d, within a second, detaches; Ctrl-] n and Ctrl-] p switch to the next and the previous agent;
Ctrl-] ? shows help; the setting detach_key chooses another key.  Only one terminal is attached at a time:
--takeover takes over from the other one, and tells its user.

--view only watches, next to the attached terminal and any number of other viewers: what you type goes
nowhere, and the agent keeps its size; a smaller terminal shows the part that fits.  q, Ctrl-C or Ctrl-] d
leaves.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys

from relay.cli.arguments import add_session
from relay.control.attaching import attach
from relay.control.sessions import SessionInfo, claims, find_claim
from relay.errors import NoSuchSession, NotAllowed, RelayError, UsageError
from relay.home import Home
from relay.names import key
from relay.terminal.client import HANDLED, SHIM_DIED, Client, SwitchAgent, TerminalMode


def configure(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--takeover", action="store_true", help="take over from the terminal that is attached")
    how.add_argument("--view", action="store_true", help="watch only, next to any other terminal")


def run(args: argparse.Namespace) -> int:
    mode = _terminal()
    session = find_claim(Home.from_env(), args.name, args.team)
    return _view(session) if args.view else _stay(session, mode, takeover=args.takeover)


def to(session: SessionInfo, *, takeover: bool) -> int:
    """Attach this terminal to the agent until it ends or the user leaves; return the exit code.

    Raise NotAllowed inside a session, UsageError without a terminal, and the error that the shim answers.
    """
    return _stay(session, _terminal(), takeover=takeover)


def follow(switch: SwitchAgent) -> int:
    """Attach this terminal to the agent that the user switches to, until they leave; return the exit code.

    Skip agents that cannot be attached (another terminal may be). Raise NoSuchSession if none can be.
    """
    home, mode = Home.from_env(), _terminal()
    while True:
        for session in _ring(home, switch):
            try:
                return _attach(session, mode, takeover=False)
            except SwitchAgent as another:
                switch = another
                break
            except RelayError:
                continue
        else:
            raise NoSuchSession("there is no other agent to switch to. `relay ps` lists running agents.")


def _ring(home: Home, switch: SwitchAgent) -> list[SessionInfo]:
    """Return the agents in the order to try them, by team and name; the one just left comes last."""
    place = key(switch.team), key(switch.name)
    forwards = switch.direction == "next"
    agents = [claim for claim in claims(home) if not claim.is_program]
    found = sorted(agents, key=_place, reverse=not forwards)
    behind = [each for each in found if (_place(each) > place if forwards else _place(each) < place)]
    return [*behind, *(each for each in found if each not in behind)]


def _place(session: SessionInfo) -> tuple[str, str]:
    return key(session.team), key(session.name)


def _stay(session: SessionInfo, mode: TerminalMode, *, takeover: bool) -> int:
    try:
        return _attach(session, mode, takeover=takeover)
    except SwitchAgent as switch:
        return follow(switch)


def _terminal() -> TerminalMode:
    """Return the modes of this terminal. Raise NotAllowed or UsageError if it cannot be attached."""
    if inside := os.environ.get("RELAY_SESSION"):
        raise NotAllowed(
            f"this terminal is inside a relay session ({os.environ.get('RELAY_NAME', inside)}); "
            "attach from a terminal outside it."
        )
    mode = TerminalMode(0, 1)
    if not mode.interactive or mode.saved is None:
        raise UsageError("attach needs a terminal for its input and output.")
    return mode


def _attach(session: SessionInfo, mode: TerminalMode, *, takeover: bool) -> int:
    assert mode.saved is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        # Block signals until the client handles them: one would leave the terminal raw.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        try:
            mode.set_raw()
            attach(session, channel, (0, 1), mode.saved, takeover=takeover)
            return Client(channel, mode, session.team, session.name).run()
        finally:
            mode.restore()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)


def _view(session: SessionInfo) -> int:
    """Show the agent's terminal. Return the agent's exit code if it ends meanwhile."""
    from relay.control.viewing import view
    from relay.terminal import libghostty
    from relay.terminal.canvas import Canvas, Rescue
    from relay.terminal.viewer import LEAVES, AgentEnded, Viewer

    libghostty.load()
    _say(f"viewing {session.name}; what you type goes nowhere. {LEAVES}.")
    canvas = Canvas(0, 1, alternate=False)
    canvas.survive(Rescue(0, 1))
    try:
        with canvas:
            Viewer(session.name, canvas, lambda: view(session)).run()
    except AgentEnded as end:
        how = "" if end.code is None else f" with exit code {end.code}"
        _say(f"{session.name} has ended{how}.")
        return SHIM_DIED if end.code is None else end.code
    if canvas.killed:
        return 128 + canvas.killed
    _say(f"{session.name} keeps running.")
    return 0


def _say(text: str) -> None:
    print(f"relay: {text}", file=sys.stderr)
