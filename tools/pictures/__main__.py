"""Draw docs/img/*.svg from the recordings beside them, or with --record make these anew.

python -m tools.pictures [--record] [--out FOLDER]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from tools.pictures.frames import TICKS, Pane, shorten
from tools.pictures.svg import draw

IMAGES = Path(__file__).parents[2] / "docs" / "img"
PICTURES = {
    "two-agents": (
        ("alice", "bob"),
        "Two agents in their own terminals. Alice prints a line that begins with @relay:Bob; it is typed "
        "into Bob's terminal. Bob does what it asks, and his answer is typed into hers.",
    ),
    "fleet": (
        ("fleet",),
        "relay top lists five agents and what each does. When Ben asks whether he may run a command, he "
        "moves to the top, as the one who needs you, and his screen is shown below the list.",
    ),
}
"""The pictures: the recordings that each shows side by side, and what it shows in words."""

_PAUSE = 2 * TICKS  # ticks of the longest pause
_HOLD = 5 * TICKS  # ticks that the last frame stays


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="record the sessions anew first")
    parser.add_argument("--out", type=Path, default=IMAGES, metavar="FOLDER", help="where the SVGs go")
    arguments = parser.parse_args()
    if arguments.record:
        from tools.pictures.record import record

        record(IMAGES)
    for name, svg in drawn():
        (arguments.out / f"{name}.svg").write_text(svg, encoding="utf-8")


def drawn() -> Iterator[tuple[str, str]]:
    """Yield the name and the SVG of each picture."""
    for name, (recordings, about) in PICTURES.items():
        panes = [Pane.play(IMAGES / f"{recording}.cast") for recording in recordings]
        yield name, draw(shorten(panes, _PAUSE), _HOLD, about)


if __name__ == "__main__":
    main()
