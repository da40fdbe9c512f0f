"""Fixtures for all tests: a separate home, and the `relay` command in it."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import forkserver
from support import LONG, Relay, await_end, many, processes_of, wait_until


def pytest_configure(config: pytest.Config) -> None:
    """Keep the developer's settings out of tests, and tests out of the developer's home."""
    for name in list(os.environ):
        if name.startswith("RELAY_") and name != "RELAY_LONG":  # turns on the long tests
            del os.environ[name]
    defaults = {
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
        signal.SIGQUIT: signal.SIG_DFL,
    }
    for number, handler in defaults.items():
        if signal.getsignal(number) is signal.SIG_IGN:  # nohup or a background job: children inherit it
            signal.signal(number, handler)
    user = tempfile.mkdtemp(prefix="home-")
    os.environ["HOME"] = user  # shells and language prompts keep their history there
    config.add_cleanup(lambda: shutil.rmtree(user, ignore_errors=True))
    # A user's Python has byte code. Without it, each process would compile all of relay.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    forkserver.install()
    re._MAXCACHE = 10_000  # profiles have 300 patterns, and are loaded again and again
    # The same examples in each run; `make test-long` looks for new ones. A busy machine is not a defect.
    hypothesis.settings.register_profile("relay", max_examples=many(250), deadline=None, derandomize=not LONG)
    hypothesis.settings.load_profile("relay")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what is collected out of garbage collections: thousands of tests, which stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that have a time limit of their own: no worker is left with one at the end.

    pytest-xdist gives each worker a share of consecutive tests. Those of a module stay together.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("timeout"):
            long.setdefault(item.path, []).append(item)
    others = [item for item in items if not item.get_closest_marker("timeout")]
    share, modules = len(items) // workers, list(long.values())
    items.clear()
    for worker in range(workers):
        first = [item for module in modules[worker::workers] for item in module]
        rest = max(share - len(first), 0) if worker < workers - 1 else len(others)
        items += [*first, *others[:rest]]
        del others[:rest]


@pytest.fixture(autouse=True)
def _real_exec(request: pytest.FixtureRequest) -> Iterator[None]:
    """Start `relay` with execve(2) in tests with the mark `real_exec`."""
    with forkserver.real_exec() if request.node.get_closest_marker("real_exec") else contextlib.nullcontext():
        yield


@pytest.fixture
def home(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Yield a fresh RELAY_HOME, named like its parameter. Fail the test if it leaves processes behind.

    With the mark `shared_home` or `own_team`, it is the module's: no test looks at what another one started.
    """
    if request.node.get_closest_marker("shared_home") or _has_own_team(request):
        yield request.getfixturevalue("shared").home
        return
    with _fresh_home(getattr(request, "param", "")) as path:
        yield path


@pytest.fixture
def relay(request: pytest.FixtureRequest, home: Path) -> Iterator[Relay]:
    """Yield the `relay` command in a fresh home: `relay("ps", "--json").stdout`.

    With the mark `own_team`, the home has the state of other tests of the module, and their broker. The test
    has a team of its own, whose agents are stopped afterwards, and what it wrote into the home is removed.
    """
    if not _has_own_team(request):
        yield Relay(home)
        return
    relay, config, others = Relay(home, f"team{next(_teams)}"), home / "config", home / "config of others"
    if config.exists():
        config.rename(others)
    known = {*home.iterdir(), home / "run", home / "state"}
    yield relay
    Relay(home, relay.team)("stop", "--all", "--now", "-t", f"{relay.team}")
    for path in {*home.iterdir()} - known:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if others.exists():
        others.rename(config)


def _has_own_team(request: pytest.FixtureRequest) -> bool:
    marker = request.node.get_closest_marker
    return marker("own_team") is not None and marker("own_home") is None


_teams = itertools.count(1)


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest) -> Iterator[Relay]:
    """Yield the `relay` command in a home shared by those tests of a module that do not interfere."""
    with _fresh_home() as path:
        yield Relay(path, "default" if request.node.get_closest_marker("own_team") else None)


@contextlib.contextmanager
def _fresh_home(name: str = "") -> Iterator[Path]:
    """Yield a home with a short path, as socket paths are limited; afterwards end its processes."""
    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp")).resolve()
    path = folder / name
    path.mkdir(exist_ok=True)
    yield path
    try:
        _end_all(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end_all(home: Path) -> None:
    """Stop what runs in `home` as a user would. Kill whatever is left, and fail the test."""
    left = processes_of(home)
    if not left:
        return
    relay = Relay(home)
    for _ in range(3):  # a session may have been ending, and its broker starting
        if any("broker" not in command for command in left.values()):
            with contextlib.suppress(subprocess.TimeoutExpired):  # the search below finds what is left
                relay("stop", "--all", check=False, timeout=30)
            left = processes_of(home)
        for pid, command in left.items():
            # `relay broker stop` takes longer; a helper would wait for another session.
            if "broker_supervisor" in command or "relay.memory.helper" in command:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        await_end(left)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not processes_of(home), timeout=60)
            break
        left = processes_of(home)
    else:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        listed = "\n".join(f"  {pid} {command}" for pid, command in left.items())
        pytest.fail(f"processes of the test's home were left behind, and are killed now:\n{listed}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report prominently what was not tested."""
    skipped = {str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])}
    if skipped:
        terminalreporter.section("NOT TESTED", sep="!", red=True, bold=True)
        for reason in sorted(skipped):
            terminalreporter.line(reason.removeprefix("Skipped: "))
