"""The pages in a browser: they follow the agents, a click answers a question, agents' words are text."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from relay.agents.usage import Spent, Tokens
from relay.agents.usage_log import UsageLog
from relay.home import Home
from session.fake_agent import FakeAgent, messages
from support import Relay, wait_until
from web.browser.pages import SIZE, Pages, Server

MENU = Path(__file__).parents[2] / "fakes" / "agent_menu.py"

HTML = "<img src=x onerror=alert(1)><b>bold</b>"

ROUTES = {
    "#/agents": "xxx",
    "#/agents/default/Ann": "Live view",
    "#/agents/default/Ann/log": "xxx",
    "#/inbox": "Inbox",
    "#/messages": "Messages",
    "#/fleet": "Cleo",
    "#/recordings": "still running",
    "#/usage": "an-account",
}
"""What each page shows."""

FLEET = """[fleet]
team = "default"
[agents.Cleo]
run = "cat"
"""

UNNAMED = """() => [...document.querySelectorAll("a, button, input, select, textarea, [tabindex='0']")]
    .filter((each) => each.checkVisibility() && !each.closest("[aria-hidden=true]"))
    .filter((each) => !(each.getAttribute("aria-label") || each.textContent.trim() || each.labels?.length))
    .map((each) => each.outerHTML)"""
"""What a keyboard reaches, but a screen reader cannot name."""

MOVE_AND_CLICK = """async (button) => {
    const { hasMoved } = await import("/question.js");
    hasMoved();
    button.dispatchEvent(new MouseEvent("click", { detail: 1, bubbles: true }));
}"""


class Asking:
    """An agent that asks by a menu, again whenever the test says so."""

    def __init__(self, relay: Relay, name: str) -> None:
        self.relay = relay
        self.name = name
        self._log = relay.home / f"{name}.log"
        command = (sys.executable, MENU, "again")
        relay(
            "wrap", "-d", "-n", name, "--agent", "claude", "--", *command, env={"AGENT_LOG": str(self._log)}
        )
        wait_until(self.asks)

    def asks(self) -> bool:
        return self.relay("answer", self.name, check=False).returncode == 0

    def ask_again(self) -> None:
        self._log.with_name(f"{self._log.name}.again").touch()
        wait_until(self.asks)

    @property
    def chosen(self) -> list[int]:
        """Return the numbers of the options that it has got."""
        return [
            each["chose"] for each in map(json.loads, self._log.read_text().splitlines()) if "chose" in each
        ]


@pytest.fixture(scope="module")
def ann(shared: Relay) -> FakeAgent:
    return FakeAgent(shared, "Ann").wrap()


@pytest.fixture(scope="module")
def ben(shared: Relay) -> Asking:
    return Asking(shared, "Ben")


@pytest.fixture
def asking(ben: Asking) -> Asking:
    """Return an agent that asks, and has not been answered."""
    if not ben.asks():
        ben.ask_again()
    return ben


def row(page: Any, name: str) -> Any:
    return page.locator(f".agent[data-agent='default/{name.lower()}']")


def settled(page: Any) -> None:
    """Wait until a click counts as an answer: not just after something has moved."""
    page.locator("html:not([data-settling])").wait_for()


def test_the_list_follows_the_agents(pages: Pages, ann: FakeAgent) -> None:
    page = pages.open()
    ann.say("All 14 tests pass")
    row(page, "Ann").get_by_text("All 14 tests pass").wait_for()
    with_bob = FakeAgent(ann.relay, "Bob").wrap()
    row(page, "Bob").wait_for()
    with_bob.exit()
    page.locator(".group-done").get_by_text("Bob").wait_for()


def test_what_an_agent_says_is_text(pages: Pages, ann: FakeAgent) -> None:
    page = pages.open()
    ann.say(HTML)
    ann.say(f"@relay:you {HTML}")
    row(page, "Ann").get_by_text(HTML).wait_for()
    for route in ("#/inbox", "#/messages", "#/agents/default/Ann/log"):
        pages.go(page, route)
        page.locator("main").get_by_text(HTML).first.wait_for()
    assert page.locator("main img, main b").count() == 0


def test_the_policy_keeps_scripts_from_parsing_strings(pages: Pages) -> None:
    page = pages.open()
    for sink in (
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.insertAdjacentHTML('beforeend', 'x')",
    ):
        assert page.evaluate(f"() => {{ try {{ {sink}; }} catch {{ return 'refused'; }} }}") == "refused"
    pages.problems.clear()  # the browser reports them


def test_a_click_answers_the_question(pages: Pages, asking: Asking) -> None:
    page = pages.open()
    card = row(page, "Ben")
    card.locator(".asked").get_by_text("touch made.txt").wait_for()
    before = len(asking.chosen)
    settled(page)
    card.get_by_role("button", name="Yes, and don't ask again").click()
    page.get_by_text("Answered Ben with 2: Yes, and don't ask again").wait_for()
    assert asking.chosen[before:] == [2]
    card.locator(".question").wait_for(state="hidden")


def test_a_click_just_after_something_has_moved_answers_nothing(pages: Pages, asking: Asking) -> None:
    page = pages.open()
    button = row(page, "Ben").get_by_role("button", name="No")
    button.wait_for()
    before = len(asking.chosen)
    button.evaluate(MOVE_AND_CLICK)
    page.get_by_text("Nothing was answered").wait_for()
    assert len(asking.chosen) == before


def test_the_keyboard_alone_answers(pages: Pages, asking: Asking) -> None:
    page = pages.open()
    row(page, "Ben").get_by_role("button", name="Yes", exact=False).first.wait_for()
    before = len(asking.chosen)
    settled(page)
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "3No":
            break
    page.keyboard.press("Enter")
    page.get_by_text("Answered Ben with 3: No").wait_for()
    assert asking.chosen[before:] == [3]


def test_an_answer_to_an_earlier_question_is_refused(pages: Pages, shared: Relay) -> None:
    """The page still shows what the agent asked before."""
    eve = FakeAgent(shared, "Eve").wrap()
    eve.say("Allow `rm a.txt`? [y/N] ", end="")
    page = pages.open()
    card = row(page, "Eve")
    yes = card.get_by_role("button", name="yes")
    yes.wait_for()
    page.route("**/api/agents", lambda route: route.abort())  # it does not hear of the next question
    with page.expect_event("requestfailed"):  # nor by a request that is on its way
        page.evaluate("import('/live.js').then(({ refresh }) => refresh('agents'))")
    eve.say("\nAllow `rm -rf /`? [y/N] ", end="")
    wait_until(lambda: "rm -rf" in shared("answer", "Eve", check=False).stdout)
    settled(page)
    yes.click()
    card.get_by_role("alert").get_by_text("now asking something else. Nothing was typed.").wait_for()
    card.locator(".asked").get_by_text("rm -rf /").wait_for()
    assert eve.received == ""
    page.unroute_all(behavior="wait")
    pages.problems.clear()  # the browser reports the refusals


def test_a_message_is_sent(pages: Pages, ann: FakeAgent) -> None:
    page = pages.open("#/agents/default/Ann")
    page.get_by_label("Message to Ann").fill("Please look at api/")
    page.get_by_role("button", name="Send").click()
    ann.receives("Please look at api/")
    pages.go(page, "#/messages")
    page.get_by_text("Please look at api/").wait_for()
    assert any(
        each["body"] == "Please look at api/" and each["from"] == "you" for each in messages(ann.relay)
    )


def test_an_answer_to_a_message_stays_in_its_thread(pages: Pages, ann: FakeAgent) -> None:
    ann.say("@relay:you Which of the two?")
    page = pages.open("#/messages")
    page.locator(".threads a", has_text="Which of the two?").click()
    page.get_by_label("Message", exact=True).fill("The second one")
    page.get_by_role("button", name="Send").click()
    page.locator(".thread .mine", has_text="The second one").wait_for()
    ann.receives("The second one")


def test_an_item_of_the_inbox_leads_to_its_agent(pages: Pages, shared: Relay) -> None:
    """The inbox has the team's name in lower case."""
    gil = FakeAgent(shared, "Gil", team="Shop").wrap()
    gil.say("@relay:you I need a key")
    page = pages.open("#/inbox")
    page.locator(".item", has_text="I need a key").get_by_role("link", name="Gil").click()
    page.get_by_text("Live view").wait_for()
    assert page.locator(".agent a[aria-current]").inner_text() == "Gil"
    shared("stop", "-t", "Shop", "Gil")


def test_an_item_of_the_inbox_is_dealt_with(pages: Pages, ann: FakeAgent) -> None:
    page = pages.open("#/inbox")
    ann.say("@relay:you the build is green")
    item = page.locator(".item", has_text="the build is green")
    item.get_by_role("button", name="Done").click()
    item.wait_for(state="detached")
    assert "the build is green" not in ann.relay("inbox").stdout


def test_an_agent_is_held_and_released(pages: Pages, ann: FakeAgent) -> None:
    page = pages.open("#/agents/default/Ann")
    page.get_by_role("button", name="Hold").click()
    row(page, "Ann").get_by_text("held", exact=True).wait_for()
    page.get_by_role("button", name="Release").click()
    page.get_by_role("button", name="Hold").wait_for()


def test_stopping_asks_first(pages: Pages, shared: Relay) -> None:
    dan = FakeAgent(shared, "Dan").wrap()
    page = pages.open("#/agents/default/Dan")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Cancel").click()
    dan.say("still here")
    row(page, "Dan").get_by_text("still here").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    page.get_by_text("Dan has stopped.").wait_for()


@pytest.fixture(scope="module")
def fleet(shared: Relay) -> None:
    (shared.home / "relay.toml").write_text(FLEET)
    shared("trust", "relay.toml")


def test_a_member_of_the_fleet_is_started_and_stopped(pages: Pages, shared: Relay, fleet: None) -> None:
    page = pages.open("#/fleet")
    page.get_by_role("button", name="Start Cleo").click()
    page.get_by_role("button", name="Stop Cleo").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Start Cleo").wait_for()
    assert "Cleo" not in shared("ps").stdout


def test_a_recording_is_played(pages: Pages, ann: FakeAgent) -> None:
    ann.say("on the record")
    wait_until(lambda: "on the record" in ann.relay("replay", "Ann").stdout)
    page = pages.open("#/recordings")
    page.locator(".casts a", has_text="Ann").first.click()
    page.get_by_label("Speed").select_option("16")
    page.get_by_role("button", name="Play", exact=True).click()
    page.locator(".xterm-rows").get_by_text("on the record").wait_for()
    page.get_by_role("button", name="Play", exact=True).wait_for()  # it has ended
    page.get_by_label("Position").fill("0")
    page.locator(".xterm-rows").get_by_text("on the record").wait_for(state="detached")


def test_asciicasts_of_both_versions_are_read(pages: Pages) -> None:
    first = (
        '{"version": 2, "width": 80, "height": 24}\n'
        '[0.5, "o", "a"]\n[1.5, "r", "100x30"]\n[9.5, "o", "b"]\n[9'  # it is still being written
    )
    second = (
        '{"version": 3, "term": {"cols": 80, "rows": 24}}\n# a comment\n'
        '[0.5, "o", "a"]\n[1.0, "r", "100x30"]\n[8.0, "o", "b"]\n'
    )
    page = pages.open()
    for text in (first, second):
        assert page.evaluate("text => import('/player.js').then(({ parse }) => parse(text))", text) == {
            "columns": 80,
            "rows": 24,
            "events": [
                {"at": 0.5, "data": "a"},
                {"at": 1.5, "columns": 100, "rows": 30},
                {"at": 3.5, "data": "b"},  # after a shorter pause
            ],
        }


def test_no_page_is_wider_than_the_window(pages: Pages, shared: Relay, ann: FakeAgent, fleet: None) -> None:
    """And every control has a name for screen readers."""
    ann.say("x" * 400)
    usage = UsageLog(
        Home.from_env(shared.environment).usage, "1", "Ann", "default", agent="claude", account="an-account"
    )
    usage.write(12, {"a-model": Spent(Tokens(input=1_000_000), cost=1.25)})
    page = pages.open()
    for route, shown in ROUTES.items():
        pages.go(page, route)
        page.locator("main").get_by_text(shown).first.wait_for()
        for width in (360, 1024, 2560):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (route, width)
        assert page.evaluate(UNNAMED) == [], route
        page.set_viewport_size(SIZE)


def test_a_page_without_its_server_says_so_and_needs_a_new_link(browser: Any, shared: Relay) -> None:
    server = Server(shared)
    pages = Pages(browser, server)
    page = pages.open()
    server.close()
    page.get_by_role("alert").get_by_text("relay web has ended").wait_for()
    pages.leave()
    pages.problems.clear()  # the browser reports each request that fails
    pages.finish()


def test_logging_out_ends_the_session(pages: Pages, ann: FakeAgent) -> None:
    page = pages.open()
    other = page.context.new_page()
    other.goto(pages.server.address)
    other.get_by_role("heading", name="Agents").wait_for()
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("heading", name="Connect to relay").wait_for()
    other.get_by_role("heading", name="Connect to relay").wait_for()
    pages.leave()
    pages.problems.clear()  # 401
