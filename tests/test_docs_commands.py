"""Every command in a block of a page runs, with small programs in place of the agents.

Each page is one test: its blocks run in order, in a project that `shell` sets up. Commands that need a
terminal (`relay wrap`, `relay top`) get one; `NOT_RUN` lists the commands that cannot run here, with
the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import termios
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from forkserver import shell_command, take_terminal
from support import PATIENCE, Relay, wait_until

pytestmark = pytest.mark.timeout(
    900
)  # a page has dozens of commands, and each takes seconds on a busy machine

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "examples/README.md",
]

NOT_RUN = {
    r"pipx install \.": "needs the network; tests/test_wheel.py installs relay",
    r"relay demo": "tests/test_demo.py runs it",
    r"make ": "runs all of the tests, or the real agents",
    r"python -m benchmarks --(only|quick|write)": "takes a minute; tests/test_benchmarks.py has the options",
    r"python -m benchmarks\.(memory|readers|top)": "takes minutes; tests/test_benchmarks.py has its parts",
    r"loginctl ": "needs systemd",
    r"pipx uninstall |rm -r ~/": "removes what the tests use",
    r"relay service (install|remove)": "needs systemd; tests/cli/test_service.py has a small one",
    r"relay doctor --broker mqtts://": "needs another host; tests/messaging/test_brokers.py has brokers",
    r"relay (spawn|release) Tester": "is for agents; tests/session/test_session_spawn.py has one",
    r"cp config/mosquitto/": "needs root",
    r"relay replay other\.cast": "needs a file that asciinema wrote",
    r"relay replay Alice --session": "an id that differs in each run; the line before is run",
    r"relay agents (update|reset) ": "tests/cli/test_agents_update.py runs it, for a minute",
}
"""Commands that are not run here, by their beginning, and the reason."""

TERMINAL = re.compile(r"relay (wrap|attach|top|replay \w)")
SYNTAX = re.compile(r"[|&;<>()$`\\*?\[~{#\n]")
"""What only a shell understands."""

AGENT = f"""\
#!{sys.executable}
import sys
print("> ", end="", flush=True)
for line in sys.stdin:
    print("heard\\n> ", end="", flush=True)
"""
FLEET = '[agents.Ann]\nrun = "codex"\n'
RULES = '{"hooks": {"PreToolUse": [{"matcher": "Bash", "type": "command", "command": "./guard.py"}]}}'
ALICE = "relay wrap -n Alice -d claude"
PREPARATION = {
    "RULES.md": ("relay trust hooks.json", ALICE),
    "PATTERNS.md": (ALICE,),
    "COMMANDS.md": (ALICE,),
}
"""Commands that a page assumes to have run before it, besides what `shell` sets up."""


@dataclass(frozen=True)
class Command:
    """A command of a page. first: whether it is the first of its block."""

    line: int
    first: bool
    text: str

    @property
    def reason(self) -> str | None:
        """Return the reason why it does not run here, if any."""
        return next((why for start, why in NOT_RUN.items() if re.match(start, self.text)), None)


def commands(page: str) -> list[Command]:
    """Return the commands in the `sh` and `console` blocks of a page; of the latter, the lines after `$ `."""
    found = []
    for block in re.finditer(r"^( *)```(sh|console)\n(.*?)^\1```$", page, re.MULTILINE | re.DOTALL):
        first = page.count("\n", 0, block.start()) + 2
        text, begins = "", True
        for at, line in enumerate(block[3].splitlines()):
            line = line.removeprefix(block[1])
            if block[2] == "console":
                if not line.startswith("$ "):
                    continue
                line = line[2:]
            text += line + "\n"
            if line and not line.endswith(("|", "\\")):
                found.append(Command(first + at, begins, text.strip()))
                text, begins = "", False
    return found


class Terminal:
    """A terminal in which a command runs. Its output is read continuously, so writes never block."""

    def __init__(self, text: str, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.text = text
        self.shown = b""
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (30, 120))
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=environment,
            start_new_session=True, preexec_fn=take_terminal,
        )  # fmt: skip
        os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def description(self) -> str:
        return f"{self.text}\n{self.shown.decode(errors='replace')}"

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def close(self) -> None:
        """End the program if it is running."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        os.close(self._master)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the program has ended
            while data := os.read(self._master, 65536):
                self.shown += data


@dataclass
class Shell:
    """Runs the commands of one page, as a user would, moving from folder to folder."""

    relay: Relay
    folder: Path
    environment: dict[str, str]
    terminals: list[Terminal] = field(default_factory=list)

    def run(self, text: str) -> None:
        if TERMINAL.match(text) and " -d " not in text:
            self._run_in_terminal(text)
            return
        where = self.relay.home / "where"
        if words := _words(text):
            done = self.relay(*words, cwd=self.folder, check=False, timeout=5 * PATIENCE)
            where.write_text(str(self.folder))
        else:
            done = subprocess.run(
                ["/bin/sh", "-euc", f'{text}\npwd > "{where}"'],
                env=self.environment,
                cwd=self.folder,
                input="",
                capture_output=True,
                text=True,
                timeout=5 * PATIENCE,
                check=False,
            )
        assert done.returncode == 0, f"{text}\nexited with {done.returncode}\n{done.stdout}{done.stderr}"
        self.folder = Path(where.read_text().strip())

    def _run_in_terminal(self, text: str) -> None:
        """Start a program that keeps its terminal, or quit one that only shows something."""
        if attached := re.match(r"relay attach (\w+)", text):
            self._detach(attached[1])
        words = _words(text)
        command = [*self.relay.command, *words] if words else ["/bin/sh", "-c", text]
        terminal = Terminal(text, command, self.folder, self.environment)
        self.terminals.append(terminal)
        if text.startswith("relay wrap"):
            name = re.search(r"-n (\w+)", text)
            wait_until(lambda: self._runs(name[1] if name else "claude"), message=terminal.description)
            return
        wait_until(lambda: terminal.shown, message=terminal.description)
        terminal.type(b"\x1dd" if text.startswith("relay attach") else b"q")
        wait_until(terminal.has_ended, message=terminal.description)
        assert terminal.process.returncode == 0, terminal.description()

    def _detach(self, name: str) -> None:
        for terminal in self.terminals:
            if f"-n {name} " in terminal.text and not terminal.has_ended():
                terminal.type(b"\x1dd")
                wait_until(terminal.has_ended, message=terminal.description)

    def _runs(self, name: str) -> bool:
        """Return whether the agent can receive messages; `relay ps` lists it before it joins the bus."""
        listed = json.loads(self.relay("ps", "--json").stdout)
        return any(each["name"] == name and each["bus"].startswith("connected") for each in listed)

    def end(self) -> None:
        self.relay("stop", "--all", timeout=5 * PATIENCE)
        for terminal in self.terminals:
            terminal.close()


@pytest.fixture
def shell(relay: Relay) -> Shell:
    """Return a shell in a git repository, ~/src/web, with small programs named claude and codex."""
    home = relay.home
    project, programs = home / "src" / "web", home / "bin"
    project.mkdir(parents=True)
    programs.mkdir()
    for name in ("claude", "codex"):
        _program(programs / name, AGENT)
    _program(
        programs / "relay",
        f'#!/bin/sh\n[ -t 1 ] && exec "{sys.executable}" -m relay "$@"\nexec {shell_command()} "$@"\n',
    )
    _program(programs / "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (project / "relay.toml").write_text(FLEET)
    (project / "hooks.json").write_text(RULES)
    _program(project / "guard.py", "#!/bin/sh\nexit 0\n")
    shutil.copytree(ROOT / "examples", project / "examples")
    shutil.copytree(ROOT / "examples", project / "RELAY" / "examples")
    shutil.copy(ROOT / "patterns/screens/claude" / _a_screen(), project / "screen.txt")
    shutil.copy(min((ROOT / "tests" / "recordings").glob("*.cast")), project / "recording.cast")
    (home / "config" / "patterns").mkdir(parents=True)
    (home / "config" / "patterns" / "mine.toml").write_text('name = "mine"\ncommands = ["mine"]\n')
    environment = relay.environment | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    relay.environment = environment
    shell = Shell(relay, project, environment)
    who = "git -c user.name=You -c user.email=you@example.org"
    shell.run(f"git init -q && git add relay.toml && {who} commit -qm Begin")
    return shell


def _words(text: str) -> list[str]:
    """Return the arguments of a `relay` command that needs no shell; otherwise none."""
    plain = re.sub(r" +# .*", "", text)
    return shlex.split(plain)[1:] if plain.startswith("relay ") and not SYNTAX.search(plain) else []


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _a_screen() -> str:
    return min(path.name for path in (ROOT / "patterns/screens/claude").glob("*.txt"))


SHOWN = {path.relative_to(ROOT).as_posix(): commands(path.read_text(encoding="utf-8")) for path in PAGES}


@pytest.mark.parametrize(
    "name", [name for name, shown in SHOWN.items() if any(not each.reason for each in shown)]
)
def test_each_command_on_a_page_works(name: str, shell: Shell) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    fleet = re.search(r"^```toml\n((?=\[fleet\]).*?)^```", page, re.MULTILINE | re.DOTALL)
    if fleet and "depends_on" not in fleet[1]:  # the one in FLEET.md needs files and programs of a project
        (shell.folder / "relay.toml").write_text(fleet[1])
    project = shell.folder
    try:
        for text in PREPARATION.get(Path(name).name, ()):
            shell.run(text)
        for command in SHOWN[name]:
            if command.first:  # each block starts in the project
                shell.folder = project
            if not command.reason:
                try:
                    shell.run(command.text.replace("/etc/", "etc/"))
                except AssertionError as error:
                    raise AssertionError(f"{name}:{command.line}: {error}") from error
    finally:
        shell.end()


def test_each_command_that_is_not_run_is_on_a_page(subtests: pytest.Subtests) -> None:
    for start in NOT_RUN:
        with subtests.test(start):
            assert any(re.match(start, each.text) for shown in SHOWN.values() for each in shown)


def test_commands_are_in_blocks_that_are_run(subtests: pytest.Subtests) -> None:
    """Blocks of commands must be marked `sh` or `console`."""
    for name in SHOWN:
        with subtests.test(name):
            page = (ROOT / name).read_text(encoding="utf-8")
            fenced = re.sub(r"^ *```\w+\n.*?^ *```$", "", page, flags=re.MULTILINE | re.DOTALL)
            unmarked = re.findall(r"^ *```\n(.*?)^ *```$", fenced, re.MULTILINE | re.DOTALL)
            assert not [
                line
                for block in unmarked
                for line in block.splitlines()
                if re.match(r" *(\$ |(relay|make|pip) )", line)
            ]
