"""Build the wheel and the sdist of a commit so that everybody who does gets the same bytes.

python -m tools.dist [--out FOLDER] [--tree FOLDER --epoch SECONDS]

What is built is what is committed, whatever else lies in this folder. The time in the archives is that of the
commit (SOURCE_DATE_EPOCH, https://reproducible-builds.org/specs/source-date-epoch/). The build backend is the
one that pyproject.toml pins for the tests: it writes its version into the wheel.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="where the archives go"
    )
    parser.add_argument("--tree", type=Path, metavar="FOLDER", help="build this folder, not the commit")
    parser.add_argument("--epoch", type=int, metavar="SECONDS", help="with --tree: the time, since the epoch")
    arguments = parser.parse_args()
    if (arguments.tree is None) != (arguments.epoch is None):
        parser.error("--tree and --epoch need each other.")
    out = arguments.out.resolve()
    if arguments.tree:
        build(arguments.tree.resolve(), out, arguments.epoch)
    else:
        with tempfile.TemporaryDirectory(prefix="relay-dist-") as folder:
            export(Path(folder))
            build(Path(folder), out, int(_git("log", "-1", "--format=%ct")))
    for path in sorted(out.iterdir()):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")


def export(folder: Path) -> None:
    """Write the files of the commit that is checked out into `folder`."""
    with tarfile.open(fileobj=BytesIO(_git("archive", "HEAD"))) as archive:
        archive.extractall(folder, filter="data")


def build(tree: Path, out: Path, epoch: int) -> None:
    """Build the sdist of `tree`, and the wheel from that, into the folder `out`, which is emptied first.

    epoch: seconds since the epoch. Exit with the builder's output if it fails.
    """
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("agent_relay-*"):
        old.unlink()
    run = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(tree)],
        env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if run.returncode != 0:
        sys.exit(run.stdout)


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
    main()
