"""Takes docs/img/web-{light,dark}.png: `relay web` in Chromium, with a fleet that acts a story.

python -m tools.pictures.web [--out FOLDER]
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
from playwright.sync_api import Page, sync_playwright

from tools.pictures.stage import AGENT, RELAY, STORIES, Home, fresh_home, read, until

IMAGES = Path(__file__).parents[2] / "docs" / "img"
SIZE = (1280, 800)

_TEAM = "shop"
_AGENTS = {"Ann": "users-v2", "Ben": "schemas", "Cleo": "footer", "Dan": "lint", "Lead": "main"}
_TERMINAL = (92, 27)  # columns and rows

_COMPRESS = """async (png) => {
    const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    const { data, width, height } = context.getImageData(0, 0, image.width, image.height);
    const rows = new Uint8Array(height * (1 + 3 * width)); // each begins with its filter: 0, none
    for (let at = 0; at < width * height; at++) {
        const row = Math.floor(at / width);
        for (let channel = 0; channel < 3; channel++) {
            rows[at * 3 + row + 1 + channel] = Math.min(255, Math.round(data[at * 4 + channel] / 4) * 4);
        }
    }
    const packed = new Blob([rows]).stream().pipeThrough(new CompressionStream("deflate"));
    const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
    return btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ""));
}"""
"""Returns the data of a PNG with every fourth shade of its colours."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the pictures of relay web.")
    parser.add_argument("--out", type=Path, default=IMAGES, metavar="FOLDER", help="where the PNGs go")
    out = parser.parse_args().out
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        sys.exit("There is no Chromium in PATH: the pictures of relay web stay as they are.")
    with _fleet() as home, _server(home) as links, sync_playwright() as playwright:
        sandbox = [] if os.geteuid() else ["--no-sandbox"]
        browser = playwright.chromium.launch(executable_path=chromium, args=sandbox)
        for scheme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme=scheme, reduced_motion="reduce"
            )
            page.goto(next(links))
            _show(page)
            picture = page.screenshot()
            page.goto("about:blank")
            (out / f"web-{scheme}.png").write_bytes(_smaller(page, picture))
        browser.close()


def _show(page: Page) -> None:
    """Return once the page shows the lead's terminal beside all agents."""
    page.get_by_role("link", name="Lead").click()
    page.locator(".xterm-rows").get_by_text("Merged users-v2").wait_for()
    page.locator(".agent", has_text="Ben").get_by_role("button", name="yes").wait_for()
    page.evaluate("document.activeElement.blur()")


def _smaller(page: Page, png: bytes) -> bytes:
    """Return the image with fewer shades, which compress better (PNG, 3rd edition, 5 and 11.2)."""
    data = base64.b64decode(page.evaluate(_COMPRESS, base64.b64encode(png).decode()))
    size = b"".join(length.to_bytes(4) for length in SIZE)
    chunks = {b"IHDR": size + bytes([8, 2, 0, 0, 0]), b"IDAT": data, b"IEND": b""}  # 8 bits, RGB
    return png[:8] + b"".join(
        len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4)
        for kind, body in chunks.items()
    )


@contextmanager
def _fleet() -> Iterator[Home]:
    """Yield a home with agents that have got to the end of their stories."""
    with fresh_home() as home:
        start = home.path / "start"
        terminals: list[pexpect.spawn] = []
        for name, branch in _AGENTS.items():
            subprocess.run(["git", "init", "--quiet", "-b", branch, home.path / f"shop-{branch}"], check=True)
            story = STORIES / "web" / f"{name.lower()}.txt"
            command = [*AGENT, str(story), "--after", str(start)]
            terminals.append(
                home.spawn(_TERMINAL, "wrap", "-n", name, "-t", _TEAM, *command, folder=f"shop-{branch}")
            )
            home.wait_for(name)
        start.touch()
        until(lambda: home.said("Lead", "Reading what Cleo"), terminals)
        until(lambda: home.said("Ben", "npm install"), terminals)
        until(lambda: len(json.loads(home("inbox", "--json"))) > 1, terminals)
        read(terminals[0], 1)  # states settle
        yield home


@contextmanager
def _server(home: Home) -> Iterator[Iterator[str]]:
    """Yield addresses that open the page, once each."""
    command = [*RELAY, "web", "--no-browser", "--port", "0"]
    server = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=home.path,
        env=home.environment,
        text=True,
        bufsize=1,
    )
    assert server.stdin is not None and server.stdout is not None

    def links() -> Iterator[str]:
        while line := server.stdout.readline():
            yield line.strip()
            server.stdin.write("\n")

    try:
        yield links()
    finally:
        server.terminate()
        server.communicate()


if __name__ == "__main__":
    main()
