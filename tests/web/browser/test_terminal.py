"""A terminal in a page: it shows what the agent draws, types only in control, and does nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from session.fake_agent import FakeAgent
from support import Relay
from web.browser.pages import SIZE, Pages

TERMINAL = "#/agents/default/Ann"

REACHING_OUT = (
    "\\x1b]0;owned\\x07\\x1b]2;owned\\x1b\\\\"  # titles
    "\\x1b]52;c;b3duZWQ=\\x07\\x1b]52;c;?\\x07"  # writes the clipboard, and reads it
    "\\x1b]8;;http://127.0.0.1:1/owned\\x1b\\\\a link\\x1b]8;;\\x1b\\\\"
    "\\x1b]9;owned\\x07\\x1b]777;notify;owned;owned\\x07"
)


COUNTING = """() => {
    window.received = window.acknowledged = 0;
    const { WebSocket } = window;
    window.WebSocket = class extends WebSocket {
        constructor(...given) {
            super(...given);
            this.addEventListener("message", ({ data }) => { window.received += data.byteLength ?? 0; });
        }

        send(data) {
            window.acknowledged = JSON.parse(data).ack;
            super.send(data);
        }
    };
}"""
"""Counts the bytes that WebSockets receive and acknowledge."""

NOT_DRAWING = """async () => {
    const { Terminal } = await import("/vendor/xterm/xterm.mjs");
    window.undrawn = [];
    Terminal.prototype.write = (_, done) => { window.undrawn.push(done); };
}"""
"""Makes terminals as slow as can be."""

FLOOD = """import os, time
block = b"x" * 1198 + b"\\r\\n"
while True:
    os.write(1, 50 * block)
    time.sleep(0.04)
"""
"""Prints about as fast as a page can draw, and leaves the page a processor to draw with."""


@pytest.fixture(scope="module")
def ann(shared: Relay) -> FakeAgent:
    return FakeAgent(shared, "Ann").wrap()


def rows(page: Any) -> Any:
    return page.locator(".xterm-rows")


def take_control(page: Any) -> None:
    page.get_by_role("button", name="Take control").click()
    page.get_by_role("dialog").get_by_role("button", name="Take control").click()
    page.get_by_text("You are in control").wait_for()


def test_it_shows_the_agents_screen_in_its_colours(pages: Pages, ann: FakeAgent) -> None:
    ann.say("before \x1b[38;2;250;151;152mtruecolor\x1b[m")
    page = pages.open(TERMINAL)
    rows(page).get_by_text("before").wait_for()
    colour = "element => getComputedStyle(element).color"
    assert rows(page).get_by_text("truecolor").evaluate(colour) == "rgb(250, 151, 152)"
    ann.say("after")
    rows(page).get_by_text("after").wait_for()


def test_screen_readers_get_the_text_on_request(pages: Pages, ann: FakeAgent) -> None:
    ann.say("read aloud")
    page = pages.open(TERMINAL)
    rows(page).get_by_text("read aloud").wait_for()
    button = page.get_by_role("button", name="Screen reader")
    button.focus()
    page.keyboard.press("Enter")
    page.locator(".xterm-accessibility").get_by_text("read aloud").wait_for()
    page.keyboard.press("Enter")  # it is kept for the next page
    assert button.get_attribute("aria-pressed") == "false"


def test_keys_reach_the_agent_only_in_control(pages: Pages, ann: FakeAgent) -> None:
    page = pages.open(TERMINAL)
    page.get_by_text("Live view").wait_for()
    page.locator(".xterm-helper-textarea").focus()
    page.keyboard.type("viewed")
    take_control(page)
    page.keyboard.type("controlled")
    page.keyboard.press("Enter")
    assert "viewed" not in ann.receives("controlled")
    page.get_by_role("button", name="Release").click()
    page.get_by_text("Live view").wait_for()


def test_a_phone_has_keys_for_its_terminal(pages: Pages, ann: FakeAgent) -> None:
    page = pages.open(TERMINAL, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    page.get_by_text("Live view").wait_for()
    take_control(page)
    page.keyboard.type("tapped")
    page.get_by_role("button", name="Enter").tap()
    ann.receives("tapped\n")
    for name in ("Esc", "Tab", "Ctrl", "Up", "Down", "Left", "Right"):
        assert page.get_by_role("button", name=name, exact=True).is_visible()


def test_what_reaches_out_of_the_terminal_does_nothing(pages: Pages, ann: FakeAgent) -> None:
    page = pages.open(TERMINAL, permissions=["clipboard-read", "clipboard-write"])
    page.evaluate("navigator.clipboard.writeText('mine')")
    page.get_by_text("Live view").wait_for()
    opened: list[Any] = []
    page.context.on("page", lambda other: opened.append(other))
    page.on("dialog", lambda dialog: (opened.append(dialog), dialog.dismiss()))
    ann.say(REACHING_OUT.encode().decode("unicode_escape") + " done")
    line = rows(page).locator("div", has_text="a link done")
    line.click(position={"x": 10, "y": 5}, force=True)
    page.get_by_role("button", name="Smaller").click()
    assert not opened
    assert "owned" not in page.title()
    assert page.evaluate("navigator.clipboard.readText()") == "mine"


def test_a_restarted_agent_is_shown_again(pages: Pages, shared: Relay) -> None:
    bob = FakeAgent(shared, "Bob").wrap()
    page = pages.open("#/agents/default/Bob")
    page.get_by_text("Live view").wait_for()
    bob.exit()
    page.get_by_text("its log and its recording remain").wait_for()
    assert page.get_by_role("button", name="Take control").is_disabled()
    FakeAgent(shared, "Bob").wrap().say("once more")
    rows(page).get_by_text("once more").wait_for()


def test_a_viewer_never_sizes_the_agent(pages: Pages, shared: Relay) -> None:
    code = "import os, sys\nprint('size', *os.get_terminal_size(), flush=True)\nsys.stdin.read()"
    shared("wrap", "-d", "-n", "Sized", "--", sys.executable, "-S", "-c", code)
    page = pages.open("#/agents/default/Sized")
    rows(page).get_by_text("size 120 40").wait_for()
    page.wait_for_function(
        "() => { const box = document.querySelector('.screen'); return box.scrollWidth <= box.clientWidth; }"
    )
    assert '"columns": 120' in shared("peek", "Sized", "--json").stdout
    page.set_viewport_size(SIZE)


@pytest.fixture(scope="module")
def flood(shared: Relay) -> Iterator[str]:
    """Yield the name of an agent that prints without end."""
    shared("wrap", "-d", "-n", "Flood", "--", sys.executable, "-S", "-c", FLOOD)
    yield "Flood"
    shared("stop", "--now", "Flood")


def test_what_is_not_drawn_is_not_acknowledged(pages: Pages, flood: str) -> None:
    page = pages.open(viewport=SIZE)  # one that is closed: it never draws again
    page.evaluate(COUNTING)
    page.evaluate(NOT_DRAWING)
    pages.go(page, f"#/agents/default/{flood}")
    page.wait_for_function("() => received > 200_000")
    assert page.evaluate("acknowledged") == 0
    page.wait_for_function("() => undrawn.splice(0).forEach((done) => done?.()) || received > 600_000")
    assert page.evaluate("acknowledged") > 200_000


def test_a_flood_keeps_the_page_alive(pages: Pages, flood: str, ann: FakeAgent) -> None:
    """The page draws what it can, and what it holds does not grow."""
    page = pages.open()
    page.evaluate(COUNTING)
    pages.go(page, f"#/agents/default/{flood}")
    client = page.context.new_cdp_session(page)

    def heap_after(megabytes: int) -> float:
        """Return the size of the page's heap, in megabytes, when it has got so many."""
        page.wait_for_function("megabytes => received > megabytes * 1e6", arg=megabytes, polling=100)
        client.send("HeapProfiler.collectGarbage")
        heap = client.send("Runtime.getHeapUsage")
        return float(heap["usedSize"] + heap["backingStorageSize"]) / 1e6

    heaps = [heap_after(megabytes) for megabytes in range(1, 6)]
    assert min(heaps[3:]) < heaps[0] + 3
    ann.say("not delayed")
    page.locator(".agent[data-agent='default/ann']").get_by_text("not delayed").wait_for()
