"""A fleet's session starts what is due: by the clock, and when there is room again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from cli.test_up import states, write
from relay.control.fleet_start import starting
from relay.errors import HomeError
from relay.home import Home
from support import Relay, session_patch, wait_until

LOOK = session_patch(
    "from relay.features import fleet_keeper\nfrom relay.supervision import schedule\n"
    "fleet_keeper.FleetKeeper.__init__.__kwdefaults__['look'] = 0.1\n"
)
"""Makes sessions check often."""


@pytest.fixture
def project(relay: Relay) -> Path:
    relay.environment |= LOOK
    folder = relay.home / "project"
    folder.mkdir()
    return folder


def agents(*names: str, gone: str = "") -> str:
    """Return tables of line programs. gone: the one that is not restarted."""
    return "".join(
        f'[agents.{name}]\nrun = "cat"\n' + ('restart = "no"\n' if name == gone else "") for name in names
    )


def test_there_is_room_again(relay: Relay, project: Path) -> None:
    write(relay, project, agents("A", "B", "C", gone="A"), most=2)
    relay("up", cwd=project)
    assert states(relay).keys() == {"A", "B"}
    queued = states(relay, "-a")["C"]
    assert (queued["state"], queued["reason"]) == ("queued", "max_running agents are running")
    os.kill(states(relay)["A"]["agent_pid"], signal.SIGKILL)
    wait_until(lambda: states(relay).keys() == {"B", "C"})


def test_what_waits_for_room_is_not_started_while_others_still_are(relay: Relay, project: Path) -> None:
    """After A has started and before B has, there seems to be room for C."""
    write(relay, project, agents("A", "B", "C"), most=2, interval=2)
    relay("up", cwd=project)
    assert states(relay).keys() == {"A", "B"}


def test_who_cannot_wait_for_other_starts_is_refused(relay: Relay) -> None:
    """An agent that asks for another one times out: nothing starts later without its knowledge."""
    home = Home.from_env(relay.environment).ensure()
    with starting(home, "web"):
        with starting(home, "red", seconds=0.0):  # another team's starts do not block it
            pass
        refusal = pytest.raises(HomeError, match="has been starting agents of web for 0 s")
        with refusal, starting(home, "web", seconds=0.0):
            pass


def test_a_schedule(relay: Relay, project: Path) -> None:
    schedule = '[agents.B]\nrun = ["sh", "-c", "echo run >> runs"]\nschedule = { every = 1 }\n'
    write(relay, project, agents("A") + schedule)
    relay("up", cwd=project)
    wait_until(lambda: (project / "runs").exists() and len((project / "runs").read_text().split()) > 1)
    relay("down", "B", cwd=project)
    wait_until(lambda: "B" not in states(relay))
    assert states(relay, "-a")["B"]["wanted"] == "down"


def test_the_keeper_that_dies_is_followed(relay: Relay, project: Path) -> None:
    write(relay, project, agents("A", "B", "C", "D", gone="C"), most=3)
    relay("up", cwd=project)
    rows = states(relay)
    for name in ("A", "B"):
        os.kill(rows[name]["pid"], signal.SIGKILL)  # one of them may have been the keeper
    os.kill(rows["C"]["agent_pid"], signal.SIGKILL)
    wait_until(lambda: states(relay).keys() == {"A", "B", "D"})


def test_a_file_that_is_not_trusted_any_more_starts_nothing(relay: Relay, project: Path) -> None:
    write(relay, project, agents("A", "B", "C", gone="A"), most=2)
    relay("up", cwd=project)
    (project / "relay.toml").write_text((project / "relay.toml").read_text() + "# changed\n")
    os.kill(states(relay)["A"]["agent_pid"], signal.SIGKILL)
    wait_until(lambda: states(relay).keys() == {"B"})
    done = relay("up", "--due", "-f", "relay.toml", cwd=project, check=False)
    assert done.returncode == 1
    assert "is not trusted" in done.stderr
    assert states(relay).keys() == {"B"}
