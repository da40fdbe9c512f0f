"""The report of `relay doctor --report`: what helps to investigate a fault, and nothing private.

A report is pasted where everyone can read it, so it quotes nothing that others wrote: from settings, journal
and environment it takes only numbers, and words that relay's own tables list.  The one exception, the details
of checks, goes through a Scrubber.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import locale
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from relay import data, doctor, settings
from relay.agents import version
from relay.agents.catalog import profiles
from relay.agents.failure import FailureSource
from relay.agents.hook_event import NativeName
from relay.agents.profile import ErrorClass
from relay.dataclass import asdict, dataclass, fields
from relay.doctor import Check, CheckResult
from relay.errors import RelayError
from relay.features.agent_version import ask
from relay.features.notices import MISTAKE
from relay.home import Home
from relay.scrubber import Scrubber
from relay.settings import Settings
from relay.storage import journal
from relay.supervision.states import Phase
from relay.terminal import libghostty
from relay.terminal.libghostty import ScreenUnavailable
from relay.transport import broker
from relay.transport.endpoint import endpoints
from relay.version import VERSION

PROBLEMS = 20
"""The number of latest problems to list."""

_SECONDS = 10.0  # for a program to print its version
_OTHER = "another"  # replaces a word that is in no table

# Known values of TERM, with the usual suffixes; of TERM_PROGRAM; and the variables of multiplexers.
_TERMS = re.compile(
    r"(?:xterm|screen|tmux|linux|vt[12]\d\d|ansi|dumb|unknown|rxvt|alacritty|ghostty|kitty|wezterm|foot|st|konsole"
    r"|iterm2?|contour|rio|mlterm|eterm|gnome|putty|mintty|cygwin|vscode)"
    r"(?:-(?:\d{1,3}color|direct|truecolor|24bit|color|mono|unicode|kitty|ghostty|bce|it|s|m|extra|basic|old))*"
)
_PROGRAMS = frozenset(
    {"Apple_Terminal", "Hyper", "Tabby", "WarpTerminal", "WezTerm", "ghostty", "iTerm.app", "kitty", "mintty"}
    | {"rio", "tmux", "vscode", "zed"}
)
_MULTIPLEXERS = {"TMUX": "tmux", "STY": "screen", "ZELLIJ": "zellij"}
_SYSTEMS = re.compile(r"[a-z][a-z0-9_-]{1,19}")
_NUMBERS = re.compile(r"\d+(?:\.\d+){0,3}")

_WORDS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "agent_failed": {"class": frozenset(get_args(ErrorClass)), "source": frozenset(get_args(FailureSource))},
    "phase": {"phase": frozenset({Phase.BACKOFF, Phase.WAITING, Phase.HELD, Phase.FAILED})},
    "notice": {"level": frozenset({"warning", "error"})},
    "rules_cut_off": {"hook_name": frozenset(NativeName)},
    "handler_problem": {},
    "directive_failed": {},
    "terminal_lost": {},
    "output_missed": {},
    "spawn_refused": {},
}
"""The journal's events that are problems, with the keys to show and the words that each may have.

An entry with any other word in them is not listed.
"""


@dataclass(frozen=True, slots=True)
class InstalledAgent:
    """An installed agent.

    version: "?" if it printed none. checked: relay's rules were checked with that version.
    """

    name: str
    version: str
    checked: bool


@dataclass(frozen=True, slots=True)
class ReportedProblem:
    """A problem from the journal. time: seconds since the epoch. about: words and numbers by key."""

    time: float
    event: str
    about: Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report.

    settings: those that differ from their defaults; for a text, only that it is set.
    findings: the checks of `relay doctor` that did not pass, without private details.
    checks:   the number of all checks.
    """

    versions: Mapping[str, str]
    platform: Mapping[str, str]
    terminal: Mapping[str, str]
    agents: tuple[InstalledAgent, ...]
    settings: Mapping[str, str]
    findings: tuple[Check, ...]
    checks: int
    problems: tuple[ReportedProblem, ...]

    def public(self) -> dict[str, Any]:
        found = [
            {"name": check.name, "result": check.result.value, "detail": check.detail}
            for check in self.findings
        ]
        return asdict(self) | {"findings": found}

    def lines(self) -> Iterator[str]:
        for title, values in (
            ("Versions", self.versions),
            ("Platform", self.platform),
            ("Terminal", self.terminal),
            ("Agents", {agent.name: _told(agent) for agent in self.agents}),
            ("Settings that differ from the defaults", self.settings),
        ):
            yield f"{title}:" if values else f"{title}: none"
            yield from (f"  {name}: {value}" for name, value in values.items())
        bad = (
            f"{len(self.findings)} of {self.checks} did not pass"
            if self.findings
            else f"all {self.checks} passed"
        )
        yield f"Checks: {bad}"
        yield from (f"  {check.result} {check.name}: {check.detail}" for check in self.findings)
        yield f"Latest problems in the journal{' (UTC):' if self.problems else ': none'}"
        for problem in self.problems:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(problem.time))
            about = "".join(f" {name}={value}" for name, value in problem.about.items())
            yield f"  {when} {problem.event}{about}"


def collect(home: Home, directory: Path, env: Mapping[str, str]) -> Report:
    """Return the report on this machine, for a session that would start in `directory`. Change nothing."""
    scrub = Scrubber.of_machine(home, directory, env)
    chosen = settings.load(home, directory)[0]
    checks = doctor.all_checks(home, directory)
    return Report(
        versions=_versions(),
        platform=_platform(),
        terminal=_terminal(env),
        agents=tuple(asyncio.run(_agents(home, env))),
        settings=dict(_differing(chosen)),
        findings=tuple(_findings(checks, chosen, scrub)),
        checks=len(checks),
        problems=tuple(problems(journal.read(home.journal))),
    )


def problems(entries: Iterable[Mapping[str, Any]]) -> list[ReportedProblem]:
    """Return the latest PROBLEMS problems of a journal, oldest first."""
    latest: deque[ReportedProblem] = deque(maxlen=PROBLEMS)
    latest.extend(found for entry in entries if (found := _problem(entry)) is not None)
    return list(latest)


def _problem(entry: Mapping[str, Any]) -> ReportedProblem | None:
    event, at = entry.get("event"), entry.get("time")
    words = _WORDS.get(event) if isinstance(event, str) else None
    if words is None or not isinstance(at, int | float) or not 0 <= at < 1e11:
        return None
    if event == "notice" and str(entry.get("text", "")).startswith(MISTAKE):
        return ReportedProblem(float(at), "notice", {"level": "mistake"})
    about: dict[str, str | int] = {}
    for name, known in words.items():
        word = entry.get(name)
        if not isinstance(word, str) or word not in known:
            return None
        about[name] = word
    code = entry.get("code")
    if event == "phase" and isinstance(code, int) and not isinstance(code, bool) and -64 <= code < 256:
        about["code"] = code
    return ReportedProblem(float(at), str(event), about)


def _versions() -> dict[str, str]:
    try:
        libghostty.load()
        screen = f"pyghostty {importlib.metadata.version('pyghostty')}"
    except ScreenUnavailable:
        screen = "not available"
    return {
        "relay": VERSION,
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "SQLite": sqlite3.sqlite_version,
        "libghostty-vt": screen,
        "nats-server": _nats_server(),
    }


def _nats_server() -> str:
    try:
        done = subprocess.run(
            [broker.binary(), "--version"], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (RelayError, OSError, subprocess.SubprocessError):
        return "does not run"
    return _numbers(done.stdout)


def _platform() -> dict[str, str]:
    release = platform.release()
    found = {"system": platform.system(), "kernel": _numbers(release), "machine": platform.machine()}
    if "microsoft" in release.lower():
        found["kernel"] += " (WSL)"
    if platform.system() == "Darwin":
        found["macOS"] = _numbers(platform.mac_ver()[0])
    try:
        described = platform.freedesktop_os_release()
    except OSError:
        pass  # not Linux, or a very small one
    else:
        name = described.get("ID", "")
        known = name if _SYSTEMS.fullmatch(name) else _OTHER
        found["distribution"] = f"{known} {_numbers(described.get('VERSION_ID', ''))}"
    if (libc := platform.libc_ver())[0]:
        found["libc"] = " ".join(libc)
    return found


def _terminal(env: Mapping[str, str]) -> dict[str, str]:
    kind = env.get("TERM", "")
    found = {"TERM": kind if _TERMS.fullmatch(kind) else _OTHER} if kind else {"TERM": "not set"}
    if named := env.get("TERM_PROGRAM"):
        found["program"] = named if named in _PROGRAMS else _OTHER
    size = shutil.get_terminal_size((0, 0))
    found["size"] = f"{size.columns}x{size.lines}" if size.columns else "not a terminal"
    inside = [name for variable, name in _MULTIPLEXERS.items() if env.get(variable)]
    found["multiplexer"] = ", ".join(inside) or "none"
    found["over ssh"] = "yes" if env.get("SSH_CONNECTION") else "no"
    found["encoding"] = locale.getpreferredencoding(False)
    return found


async def _agents(home: Home, env: Mapping[str, str]) -> list[InstalledAgent]:
    """Return the installed agents that relay ships rules for; the user's own profiles are private."""
    shipped = {path.stem for path in data.directory("patterns").glob("*.toml")}
    try:
        known = [each for each in profiles(home) if each.name in shipped and each.checked]
    except RelayError:
        return []  # a pattern file is wrong; a check reports it

    async def agent(name: str, checked: tuple[str, ...], program: str) -> InstalledAgent:
        said = await ask(program, Path(os.sep), env)
        return InstalledAgent(name, _numbers(said), said in checked)

    found = [(each.name, each.checked, path) for each in known if (path := version.program(each))]
    return sorted(await asyncio.gather(*(agent(*each) for each in found)), key=lambda each: each.name)


def _differing(chosen: Settings) -> Iterator[tuple[str, str]]:
    for each in fields(Settings):
        value = getattr(chosen, each.name)
        if value == each.default:
            continue
        if isinstance(value, int | float) or (each.metadata["choices"] and value in each.metadata["choices"]):
            yield each.name, f"{value:g}" if isinstance(value, float) else str(value)
        elif isinstance(value, tuple):
            yield each.name, f"set ({len(value)})"
        elif each.name == "broker":
            yield each.name, f"set ({_schemes(value)})"
        else:
            yield each.name, "set"


def _schemes(urls: str) -> str:
    try:
        return ", ".join("mqtts" if endpoint.tls else "mqtt" for endpoint in endpoints(urls))
    except RelayError:
        return "not valid"


def _findings(checks: Iterable[Check], chosen: Settings, scrub: Scrubber) -> Iterator[Check]:
    for check in checks:
        if check.result is CheckResult.OK:
            continue
        # These details quote the user's files.
        private = (
            check.name == "settings"
            or (check.name == "agents" and check.result is CheckResult.FAIL)
            or (check.name == "broker" and chosen.broker)
        )
        yield check._replace(detail="see `relay doctor`" if private else scrub(check.detail))


def _numbers(text: str) -> str:
    """Return the numbers of the first version in `text`; "?" if there is none."""
    found = _NUMBERS.search(text)
    return found[0] if found else "?"


def _told(agent: InstalledAgent) -> str:
    if agent.version == "?":
        return "installed; version unknown"
    return f"{agent.version}, {'checked' if agent.checked else 'not checked'}"
