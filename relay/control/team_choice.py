"""The team of an agent that the user names without a team: the same for all commands.

It is the team of this folder's fleet if the fleet has that agent, or else the only team with an agent of that
name. If RELAY_TEAM is set, it decides between several teams instead of the fleet.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from relay import names
from relay.errors import RelayError
from relay.home import Home


def fleet_team(home: Home, name: str) -> str | None:
    """Return the team of the fleet of the working directory if it has an agent `name`, else None.

    The file must be trusted: a stranger's must not choose who receives a message. RELAY_TEAM comes first.
    """
    with suppress(RelayError, OSError):
        from relay import settings  # 3 ms

        here = Path.cwd()
        files = filter(None, (settings.find(here), home.config / settings.FILE))
        described = any(each.is_file() and b"agents" in each.read_bytes() for each in files)
        if described and not os.environ.get("RELAY_TEAM"):
            from relay.supervision import fleet_file  # 30 ms

            fleet = fleet_file.load(home, here)
            if fleet.find(name) is not None:
                return fleet.team
    return None


def team_of(home: Home, name: str, given: str | None, otherwise: str | None = None) -> str:
    """Return the team of the agent `name`, which may have ended: `given`, or as above.

    If several teams, or none, have had such an agent, it is `otherwise`, else RELAY_TEAM, else the default.
    """
    from relay.messaging.ledger import Ledger

    if (team := given or fleet_team(home, name)) is not None:
        return names.team(team)
    team = names.team(otherwise)
    if not home.ledger.exists():
        return team
    with Ledger(home.ledger) as ledger:
        known = ledger.registry.teams(name)
    return known[0] if len(known) == 1 else team
