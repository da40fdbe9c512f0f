"""The pictures of the documentation match their recordings, are small, and work without animation."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from relay.recording.asciicast import Cast

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "img"
NAMES = ("fleet", "two-agents")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pictures")
    command = [sys.executable, "-m", "tools.pictures", "--out", str(out)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return out


def test_the_pictures_are_up_to_date(redrawn: Path) -> None:
    assert sorted(path.stem for path in IMAGES.glob("*.svg")) == sorted(NAMES)
    for name in NAMES:
        drawn, committed = (folder / f"{name}.svg" for folder in (redrawn, IMAGES))
        assert drawn.read_bytes() == committed.read_bytes(), "run `make pictures` and commit what it draws"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pictures_of_relay_web_are_small(scheme: str) -> None:
    png = (IMAGES / f"web-{scheme}.png").read_bytes()
    assert len(png) <= 120_000
    assert (int.from_bytes(png[16:20]), int.from_bytes(png[20:24])) == (1280, 800)


@pytest.mark.parametrize("name", NAMES)
def test_the_pictures_are_small_and_have_no_scripts(name: str) -> None:
    path = IMAGES / f"{name}.svg"
    assert path.stat().st_size < 300_000
    svg = path.read_text(encoding="utf-8")
    tags = {element.tag.removeprefix(SVG) for element in ET.fromstring(svg).iter()}
    assert tags == {"svg", "title", "style", "rect", "circle", "text", "tspan", "g"} - (
        {"circle"} if "<circle" not in svg else set()
    )
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import|\bon\w+=", svg)


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("two-agents", ("@relay:Bob Please add", " from Alice] Please add", " from Bob] Done", "● Merged.")),
        ("fleet", ("5 agents, 1 needs you", "Allow `npm install zod`? [y/N]")),
    ],
)
def test_without_animation_the_last_frame_is_shown(name: str, texts: tuple[str, ...]) -> None:
    root = ET.parse(IMAGES / f"{name}.svg").getroot()
    groups = root.findall(f"{SVG}g")
    last = [group for group in groups if "last" in group.attrib["class"].split()]
    rows = [row for group in last for row in group.findall(f"{SVG}text")]
    shown = "\n".join("".join(row.itertext()) for row in rows)
    for text in texts:
        assert text in shown
    places = [(row.attrib["x"], row.attrib["y"]) for row in rows]
    assert len(set(places)) == len(places), "two rows overlap"
    style = root.findtext(f"{SVG}style", "")
    still, _, moving = style.partition("@media (prefers-reduced-motion: no-preference)")
    assert ".row{visibility:hidden" in still
    assert ".last{visibility:visible}" in still
    assert "@keyframes" not in still
    assert "animation-name" not in still
    assert moving.count("@keyframes") == sum(
        each[0] == "a" for g in groups for each in g.attrib["class"].split()
    )


@pytest.mark.parametrize("cast", ["alice", "bob", "fleet"])
def test_recordings_reveal_nothing_about_their_machine(cast: str) -> None:
    recording = Cast(IMAGES / f"{cast}.cast", strict=True)
    text = "".join(event.data for event in recording)
    header = recording.header
    assert (header.timestamp, header.command, dict(header.env), header.session) == (None, "", {}, "")
    assert not re.search(r"/(home|root|tmp|usr|Users|work)\b", text)
