"""A fleet's sessions start the agents that are due: by the schedule, or once fewer agents are running."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from cli.test_up import states, write
from relay.control.fleet_start import starting
from relay.errors import HomeError
from relay.eventbus import EventBus
from relay.features.fleet_keeper import FleetKeeper
from relay.home import Home
from relay.storage.journal import Journal
from relay.supervision.records import Records
from supervision.repositories import Repo, needs_git
from support import Relay, session_patch, wait_until

CHECK_OFTEN = session_patch(
    "from relay.features import fleet_keeper\nfrom relay.supervision import schedule\n"
    "fleet_keeper.FleetKeeper.__init__.__kwdefaults__['look'] = 0.3\n"
)
"""Makes sessions check often."""


@pytest.fixture
def project(relay: Relay) -> Path:
    relay.environment |= CHECK_OFTEN
    folder = relay.home / "project"
    folder.mkdir()
    return folder


def agents(*names: str, once: str = "") -> str:
    """Return tables of line programs. once: the one that is not restarted."""
    return "".join(
        f'[agents.{name}]\nrun = "cat"\n' + ('restart = "no"\n' if name == once else "") for name in names
    )


def test_a_queued_agent_starts_when_another_ends(relay: Relay, project: Path) -> None:
    write(relay, project, agents("A", "B", "C", once="A"), most=2)
    relay("up", cwd=project)
    assert states(relay).keys() == {"A", "B"}
    queued = states(relay, "-a")["C"]
    assert (queued["state"], queued["reason"]) == ("queued", "max_running agents are running")
    os.kill(states(relay)["A"]["agent_pid"], signal.SIGKILL)
    wait_until(lambda: states(relay).keys() == {"B", "C"})


def test_a_queued_agent_does_not_start_while_others_are_starting(relay: Relay, project: Path) -> None:
    """After the start of A and before that of B, C seems to be within max_running."""
    write(relay, project, agents("A", "B", "C"), most=2, interval=2)
    relay("up", cwd=project)
    assert states(relay).keys() == {"A", "B"}
    relay("down", cwd=project)  # else C starts when the others are stopped


def test_a_start_that_cannot_wait_for_others_is_refused(relay: Relay) -> None:
    """An agent that asks for another one gets an error, so nothing starts later without its knowledge."""
    home = Home.from_env(relay.environment).ensure()
    with starting(home, "web"):
        with starting(home, "red", seconds=0.0):  # another team's starts do not delay it
            pass
        refusal = pytest.raises(HomeError, match="has been starting agents of web for 0 s")
        with refusal, starting(home, "web", seconds=0.0):
            pass


def test_a_scheduled_agent_runs_until_it_is_stopped(relay: Relay, project: Path) -> None:
    schedule = '[agents.B]\nrun = ["sh", "-c", "echo run >> runs"]\nschedule = { every = 1 }\n'
    write(relay, project, agents("A") + schedule)
    relay("up", cwd=project)
    wait_until(lambda: (project / "runs").exists() and len((project / "runs").read_text().split()) > 1)
    relay("down", "B", cwd=project)
    wait_until(lambda: "B" not in states(relay))
    assert states(relay, "-a")["B"]["wanted"] == "down"


WAITING = """
[agents.Clock]
run = ["sh", "-c", "echo run >> clock"]
schedule = { every = 1 }
[agents.Report]
run = ["sh", "-c", "echo run >> report"]
schedule = { every = 1 }
depends_on = { Worker = "exited_ok" }
[agents.Worker]
restart = "no"
"""


def count(path: Path) -> int:
    return len(path.read_text().split()) if path.exists() else 0


def make_due(relay: Relay, name: str) -> None:
    """Change the record of an agent that starts every hour, so that it is overdue."""
    records = Records(Home.from_env(relay.environment))
    records.change("web", name, lambda record: replace(record, scheduled=record.scheduled - 4000))


def test_an_agent_that_waits_for_a_dependency_delays_no_other(relay: Relay, project: Path) -> None:
    write(
        relay,
        project,
        agents("Keeper") + WAITING + """run = ["sh", "-c", "until [ -e finish ]; do sleep 0.1; done"]""",
    )
    relay("up", cwd=project)
    wait_until(lambda: states(relay, "-a")["Report"]["reason"] == "it is waiting until Worker is exited_ok")
    before = count(project / "clock")
    wait_until(lambda: count(project / "clock") > before + 1)
    assert count(project / "report") == 0
    (project / "finish").touch()
    wait_until(lambda: count(project / "report") > 0)


def test_a_dependency_is_started_once(relay: Relay, project: Path) -> None:
    write(relay, project, agents("Keeper") + WAITING + """run = ["sh", "-c", "echo run >> worker; exit 1"]""")
    relay("up", cwd=project, check=False)
    wait_until(lambda: states(relay, "-a")["Report"]["reason"] == "it is waiting until Worker is exited_ok")
    before = count(project / "clock")
    wait_until(lambda: count(project / "clock") > before + 2)
    assert count(project / "worker") <= 2  # by relay up, and for Report
    assert count(project / "report") == 0


def test_a_dependency_can_have_dependencies(relay: Relay, project: Path) -> None:
    rest = 'autostart = false\n[agents.{0}]\nrun = "cat"\ndepends_on = ["{1}"]\n'
    hourly = "schedule = { every = 3600, catch_up = true }\n"
    tables = agents("C") + rest.format("B", "C") + rest.format("A", "B") + hourly
    write(relay, project, tables)
    relay("up", cwd=project)
    assert states(relay).keys() == {"B", "C"}
    relay("down", "B", "C", cwd=project)
    make_due(relay, "A")
    relay("up", "--due", cwd=project)
    wait_until(lambda: states(relay).keys() == {"A", "B", "C"})


@needs_git
@pytest.mark.parametrize("problem", ["setup", "program"])
def test_a_failed_start_is_retried_at_its_next_scheduled_time(
    relay: Relay, project: Path, problem: str
) -> None:
    repo = Repo(project / "app")
    setup = 'run = "cat"\nworktree = { setup = ["false"] }\n'
    run = setup if problem == "setup" else 'run = "no-such-program"\n'
    write(relay, repo.path, f"[agents.A]\n{run}schedule = {{ every = 3600, catch_up = true }}\n")
    relay("up", cwd=repo.path)
    make_due(relay, "A")
    first, second = (relay("up", "--due", cwd=repo.path, check=False) for _ in range(2))
    assert first.returncode == 1 and problem in first.stderr
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert states(relay, "-a")["A"]["state"] == ("held" if problem == "setup" else "failed")


def test_a_start_that_the_system_refuses_is_retried(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, if there are too many processes."""
    home = Home.from_env(relay.environment).ensure()

    async def scene() -> None:
        bus, started, problems = EventBus(), asyncio.Event(), [BlockingIOError(11, "No more processes")]
        keeper = FleetKeeper(bus, Journal(home.journal, "s1", "Alice", bus, publishes=False), home, look=0.01)

        def start(_: Path) -> None:
            if problems:
                raise problems.pop()
            bus.loop.call_soon_threadsafe(started.set)

        monkeypatch.setattr(keeper, "_due", lambda: {Path("/web/relay.toml"): ["A"]})
        monkeypatch.setattr(keeper, "_start", start)
        running = asyncio.ensure_future(keeper.run())
        waiting = asyncio.ensure_future(started.wait())
        done, _ = await asyncio.wait({running, waiting}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        assert done == {waiting}

    asyncio.run(scene())


def test_another_session_replaces_a_killed_keeper(relay: Relay, project: Path) -> None:
    write(relay, project, agents("A", "B", "C", "D", once="C"), most=3)
    relay("up", cwd=project)
    rows = states(relay)
    for name in ("A", "B"):
        os.kill(rows[name]["session_pid"], signal.SIGKILL)  # one of them may have been the keeper
    os.kill(rows["C"]["agent_pid"], signal.SIGKILL)
    wait_until(lambda: states(relay).keys() == {"A", "B", "D"})


def test_a_file_that_is_no_longer_trusted_starts_nothing(relay: Relay, project: Path) -> None:
    write(relay, project, agents("A", "B", "C", once="A"), most=2)
    relay("up", cwd=project)
    (project / "relay.toml").write_text((project / "relay.toml").read_text() + "# changed\n")
    os.kill(states(relay)["A"]["agent_pid"], signal.SIGKILL)
    wait_until(lambda: states(relay).keys() == {"B"})
    done = relay("up", "--due", "-f", "relay.toml", cwd=project, check=False)
    assert done.returncode == 1
    assert "is not trusted" in done.stderr
    assert states(relay).keys() == {"B"}
