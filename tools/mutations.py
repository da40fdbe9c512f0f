"""Show what the tests notice: break the code in one place at a time, and see which tests fail.

python -m tools.mutations [--tests all] [--first] [--jobs N] [NAME...]

A mutation is a mistake that a programmer could make, tests/mutations/NAME.patch:

    One sentence: what a user would suffer.
    Tests: tests/rules tests/hooks/test_runner.py                what should notice it

    --- a/relay/rules/engine.py ...                              what `git apply` takes

    patch ─→ a copy of this tree, with its own interpreter ─→ pytest ─→ the tests that failed

Tests that fail without any mutation do not count. The exit code is 1 if a mutation went unnoticed. What a
mutant leaves running is killed.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parent.parent
PATCHES = ROOT / "tests" / "mutations"

HANGS = 60
"""Seconds after which a test that hangs counts as one that has noticed the mutation."""

LIMIT = 1200.0
"""Seconds for all tests of one mutation; those that have not run by then have not noticed it."""

_REPORT = "MUTATIONS_REPORT"  # names the file to which pytest, with this module as a plugin, writes outcomes
_PATCHED = re.compile(r"^\+\+\+ b/(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mutation:
    """A patch. says: what a user would suffer. tests: the files, folders or tests that should notice it."""

    path: Path
    says: str
    tests: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem


class Outcomes(NamedTuple):
    """The tests that passed and failed, by their ids, in one run of `seconds`. cut: it took too long."""

    passed: frozenset[str]
    failed: frozenset[str]
    seconds: float
    cut: bool


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these mutations (default: all)")
    parser.add_argument("--tests", choices=("named", "all"), default="named", help="those named in the patch")
    parser.add_argument("--first", action="store_true", help="stop each run at the first test that fails")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="copies to test at once (default: 1)"
    )
    parser.add_argument("-n", dest="workers", default="2", metavar="N", help="pytest's workers in each copy")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="for each mutation")
    parser.add_argument("--verbose", action="store_true", help="name the tests that never were the only ones")
    arguments = parser.parse_args()
    known = {mutation.name: mutation for mutation in map(read, sorted(PATCHES.glob("*.patch")))}
    if unknown := set(arguments.names) - known.keys():
        parser.error(f"there is no mutation {', '.join(sorted(unknown))} in {PATCHES.relative_to(ROOT)}.")
    chosen = [known[name] for name in arguments.names] or [*known.values()]
    every = sorted({test for mutation in chosen for test in mutation.tests})
    options = ["-n", arguments.workers]

    # The copies end first: so Ctrl-C ends what the threads wait for.
    with ThreadPoolExecutor(arguments.jobs) as pool, copies(arguments.jobs) as free:
        first = free.get()
        print(f"Running the tests without a mutation in {first.tree} ...", flush=True)
        sound = first.run(tests_of(every, arguments.tests), options, 10 * arguments.limit)
        free.put(first)
        print(f"{len(sound.passed)} tests passed in {sound.seconds:.0f} s.", flush=True)
        for test in sorted(sound.failed):
            print(f"does not count, since it fails anyway: {test}")

        def noticed(mutation: Mutation) -> set[str]:
            copy = free.get()
            try:
                with copy.mutated(mutation):
                    tests = tests_of(mutation.tests, arguments.tests)
                    found = copy.run(tests, [*options, *["-x"] * arguments.first], arguments.limit)
            finally:
                free.put(copy)
            by = set(found.failed & sound.passed)
            cut = ", and was cut off" if found.cut else ""
            print(f"{mutation.name}: {len(by)} noticed it in {found.seconds:.0f} s{cut}", flush=True)
            return by

        results = dict(zip(chosen, pool.map(noticed, chosen), strict=True))
    print(*table(results), sep="\n")
    if not arguments.first:
        print(*shared({each.name: by for each, by in results.items()}, arguments.verbose), sep="\n")
    missed = [mutation for mutation, by in results.items() if not by]
    for mutation in missed:
        print(f"\n!!! UNNOTICED: {mutation.name}\n    {mutation.says}")
    return 1 if missed else 0


def read(path: Path) -> Mutation:
    """Return the mutation in `path`. Raise ValueError if its header is wrong."""
    text = path.read_text(encoding="utf-8")
    header = re.match(r"(?P<says>\S.*\.)\nTests: (?P<tests>\S.*)\n\n(?:---|diff) ", text)
    if header is None:
        raise ValueError(f"{path} must begin with a sentence, a line `Tests: ...`, an empty line, and a diff")
    return Mutation(path, header["says"], tuple(header["tests"].split()), tuple(_PATCHED.findall(text)))


def tests_of(named: Sequence[str], which: str) -> list[str]:
    """Return pytest's arguments. Of all tests, those of the patches do not count: none applies twice."""
    return [*named] if which == "named" else ["tests", "--ignore=tests/test_mutations.py"]


class Copy:
    """A copy of the working tree in `folder`, with an interpreter that imports from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self._bin = folder / "venv" / "bin"
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
        for name in filter(None, names.split("\0")):
            if os.path.lexists(ROOT / name):  # otherwise its deletion is not committed yet
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                self._take(name)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        (packages,) = folder.glob("venv/lib/python*/site-packages")
        # The .pth files in the second folder are not read, so this checkout is not on the path.
        (packages / "copy.pth").write_text(f"{self.tree}\n{sysconfig.get_path('purelib')}\n")
        command = "import sys\n\nfrom relay.__main__ import main\n\nsys.exit(main())\n"
        (self._bin / "relay").write_text(f"#!{self._bin / 'python'}\n{command}")
        (self._bin / "relay").chmod(0o755)
        self._compile("relay", "tests", "tools")
        imported = self._python("-P", "-c", "import relay; print(relay.__file__)").strip()
        assert imported == str(self.tree / "relay" / "__init__.py"), imported

    @contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        """Apply `mutation` for a block. Compile it: Python compares only size and time of a .pyc file."""
        env = self._env() | {"GIT_CEILING_DIRECTORIES": str(self.folder)}
        subprocess.run(["git", "apply", mutation.path], cwd=self.tree, env=env, check=True)
        self._compile(*mutation.files)
        try:
            yield
        finally:
            for name in mutation.files:
                self._take(name)
            self._compile(*mutation.files)

    def run(self, tests: Sequence[str], options: Sequence[str], limit: float) -> Outcomes:
        """Run pytest for at most `limit` seconds, and kill what it leaves behind."""
        report = self.folder / "report"
        report.write_text("")
        argv = [str(self._bin / "python"), "-m", "pytest", "-q", "--tb=no", f"--timeout={HANGS}"]
        began, cut = time.monotonic(), False
        with open(self.folder / "output", "w+", encoding="utf-8") as output:
            process = subprocess.Popen(
                [*argv, "-p", "tools.mutations", *options, *tests],
                cwd=self.tree,
                env=self._env() | {_REPORT: str(report)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                cut = True
            finally:
                kill_processes_of(self.folder)
                process.wait()
            lines = report.read_text(encoding="utf-8").splitlines()
            if not lines:
                output.seek(0)
                sys.exit(f"pytest ran no test:\n{output.read()}")
        failed = frozenset(line.removeprefix("failed ") for line in lines if line.startswith("failed "))
        passed = frozenset(line.removeprefix("passed ") for line in lines if line.startswith("passed "))
        return Outcomes(passed - failed, failed, time.monotonic() - began, cut)

    def _take(self, name: str) -> None:
        shutil.copy2(ROOT / name, self.tree / name, follow_symlinks=False)

    def _compile(self, *names: str) -> None:
        if python := [name for name in names if name.endswith(".py") or "." not in name]:
            self._python("-m", "compileall", "-q", "-f", *python)

    def _python(self, *arguments: str) -> str:
        run = [str(self._bin / "python"), *arguments]
        env = self._env()
        return subprocess.run(
            run, cwd=self.tree, env=env, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def _env(self) -> dict[str, str]:
        """Return the environment. Its PATH also marks all processes that a run starts."""
        dropped = {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME", "PYTEST_ADDOPTS", "VIRTUAL_ENV"}
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return kept | {"PATH": f"{self._bin}{os.pathsep}{kept.get('PATH', os.defpath)}"}


@contextmanager
def copies(number: int) -> Iterator[queue.SimpleQueue[Copy]]:
    """Yield a queue of copies; delete them at the end."""
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        for each in range(number):
            place = Path(folder).resolve() / str(each)
            place.mkdir()
            free.put(Copy(place))
        try:
            yield free
        finally:
            kill_processes_of(Path(folder).resolve())


def kill_processes_of(folder: Path) -> None:
    """Kill the processes whose environment or command line names a file in `folder` (Linux)."""
    mark = f"{folder}/".encode()

    def ours(process: Path) -> bool:
        with suppress(OSError):  # ended, or another user's
            return mark in (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        return False

    while left := [int(each.name) for each in Path("/proc").glob("[0-9]*") if ours(each)]:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of a test (pytest calls this if the module is its plugin)."""
    path = os.environ.get(_REPORT)
    if path and "PYTEST_XDIST_WORKER" not in os.environ and (report.failed or report.when == "call"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{report.outcome} {report.nodeid}\n")


def table(results: Mapping[Mutation, set[str]]) -> Iterator[str]:
    """Yield the rows of a Markdown table of what was noticed."""
    yield "\n| mutation | tests that noticed it | for example |\n|---|---|---|"
    for mutation, by in results.items():
        yield f"| {mutation.name} | {len(by) or '**none**'} | {f'`{min(by)}`' if by else ''} |"


def shared(noticed: Mapping[str, set[str]], verbose: bool = False) -> Iterator[str]:
    """Yield, by file, how many test functions have noticed mutations, but none that others did not."""
    functions = {name: {test.partition("[")[0] for test in by} for name, by in noticed.items()}
    only = {next(iter(by)) for by in functions.values() if len(by) == 1}
    never = set[str]().union(*functions.values()) - only
    yield f"\n{len(only)} test functions were the only ones to notice some mutation; {len(never)} never were."
    for file, number in sorted(Counter(each.partition("::")[0] for each in never).items()):
        yield f"  {number:4} {file}"
        if verbose:
            yield from (f"         {each}" for each in sorted(never) if each.startswith(f"{file}::"))


if __name__ == "__main__":
    sys.exit(main())
