"""Why a turn failed, according to the shipped pattern files: hooks, records, screens, last lines, decoys.

The messages of claude 2.1.197 and codex 0.169.0 are partly as drawn by the real CLIs (patterns/screens); the
others are from their packages, like those of qwen 0.15.10, gemini 0.61.0, pi 0.73.1 and aider 0.86.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay import data
from relay.agents import updates
from relay.agents.catalog import made
from relay.agents.failure import MAX_TEXT, Failure, of_exit, of_hook, of_record, of_screen, of_text
from relay.agents.profile import ErrorRule

NEW_YORK = ZoneInfo("America/New_York")
NOW = datetime(2026, 11, 25, 15, 0, tzinfo=NEW_YORK).timestamp()
EIGHT = datetime(2026, 11, 25, 20, 0, tzinfo=NEW_YORK).timestamp()
PROFILES = {profile.name: profile for profile in made(updates.shipped(), {})}
CLAUDE, CODEX = PROFILES["claude"], PROFILES["codex"]
OLDER = Path(__file__).parent.parent / "state" / "older"

CLAUDE_MESSAGES = {
    "rate_limited": [
        "You've hit your session limit · resets 8pm (America/New_York)",
        "You've hit your weekly limit · resets Apr 1 at 9am (America/New_York)",
        "You've hit your Opus limit · resets 8:30pm (America/New_York)",
        "You've hit your usage limit",
        "You've hit your org's monthly usage limit · resets Dec 1, 9am (UTC)",
        "You're out of extra usage · resets 8pm (America/New_York)",
        "You're out of usage credits · resets 8pm (America/New_York)",
        "You've reached your Fable 5 limit. Run /usage-credits to continue or switch models with /model.",
        "API Error: Request rejected (429) · This request would exceed your account's rate limit.",
        "API Error: Server is temporarily limiting requests (not your usage limit) · Rate limited",
    ],
    "billing": [
        "Credit balance is too low",
        "You're out of usage credits. /model to switch models.",
        "You're out of extra usage",
        "You've hit your monthly spend limit · raise it at claude.ai/settings/usage",
        "You've hit your org's monthly spend limit · run /usage-credits to raise it",
        "Your org is out of usage · add funds to continue",
        "Your seat type doesn't include usage credits",
        "Your group's usage limit is set to $0 · run /usage-credits to ask your admin for a higher limit",
        "Fable 5 requires usage credits. /model to switch models.",
        "API Error: Usage credits required for 1M context · run /usage-credits to turn them on",
    ],
    "unauthorized": [
        "Please run /login · API Error: 401 invalid x-api-key",
        "Not logged in · Please run /login",
        "Invalid API key · Fix external API key",
        "OAuth token revoked · Please run /login",
        "Failed to authenticate. API Error: 403 Forbidden",
        "Your organization has disabled API key authentication · Unset ANTHROPIC_API_KEY",
    ],
    "overloaded": [
        "API Error: Repeated 529 Overloaded errors. The API is at capacity — this is usually temporary.",
        "API Error: 500 Internal server error. This is a server-side issue, usually temporary",
        "Opus is experiencing high load, please use /model to switch to Sonnet",
    ],
    "context_full": ["Prompt is too long", "Context limit reached · /compact or /clear to continue"],
    "network": [
        "API Error: Unable to connect to API (ECONNREFUSED)",
        "API Error: Connection error.",
        "API Error: Connection to the API was lost (ECONNRESET). This is usually temporary — try again.",
        "API Error: Request timed out. Check your internet connection and proxy settings",
        "Authentication error · This may be a temporary network issue, please try again",
    ],
}
CODEX_MESSAGES = {
    "rate_limited": [
        "You’ve hit your usage limit. Visit https://chatgpt.com/settings/usage to purchase more credits or "
        "try again at 7:58 PM.",
        "You've hit your usage limit. To get more access now, send a request to your admin or try again "
        "later.",
        "You’ve hit your usage limit for gpt-5. Switch to another model now, or try again at Dec 1st, 2026 "
        "4:55 AM.",
        "exceeded retry limit, last status: 429 Too Many Requests",
    ],
    "billing": [
        "Quota exceeded. Check your plan and billing details.",
        "Your workspace is out of credits. Add credits to continue.",
        "You hit your spend cap set in your workspace. Increase your spend cap to continue.",
        "To use Codex with your ChatGPT plan, upgrade to Plus: https://chatgpt.com/explore/plus.",
    ],
    "unauthorized": [
        "unexpected status 401 Unauthorized: invalid x-api-key, url: http://127.0.0.1:44711/v1/responses",
        "Your access token could not be refreshed. Please log out and sign in again.",
    ],
    "overloaded": [
        "Selected model is at capacity. Please try a different model.",
        "We’re currently experiencing high demand, which may cause temporary errors.",
        "unexpected status 503 Service Unavailable: x, url: http://127.0.0.1:44711/v1/responses",
    ],
    "context_full": [
        "Codex ran out of room in the model's context window. Start a new thread or clear earlier history "
        "before retrying."
    ],
    "network": ["stream disconnected before completion: error sending request for url (http://127.0.0.1:1/)"],
}
QWEN_MESSAGES = {
    "rate_limited": ["[API Error: 429 Rate limit reached, try again in 20s]"],
    "billing": [
        "[API Error: 429 You exceeded your current quota, please check your plan and billing details.]"
    ],
    "unauthorized": ["[API Error: 401 invalid x-api-key] (Press Ctrl+Y to retry)"],
    "overloaded": ["[API Error: 503 Service Unavailable]"],
    "context_full": [
        "[API Error: 400 This model's maximum context length is 128000 tokens.]",
        "Session token limit exceeded: 1000 tokens > 900 limit.",
    ],
    "network": ["[API Error: Connection error. (cause: fetch failed)]"],
}
GEMINI_MESSAGES = {
    "rate_limited": [
        "[API Error: You have exhausted your capacity on this model. Your quota will reset after 5h20m7s.]",
        "[API Error: You exceeded your current quota, please check your plan. Please retry in 43.2s. "
        "(Status: RESOURCE_EXHAUSTED)]",
        "[API Error: You have exhausted your daily quota on this model.]",
    ],
    "unauthorized": [
        '[API Error: {"error":{"code":400,"message":"API key not valid. Please pass a valid API key."}}]'
    ],
    "context_full": [
        "[API Error: The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).]"
    ],
}
PI_MESSAGES = {
    "rate_limited": [
        "You have hit your ChatGPT usage limit (plus plan). Try again in ~45 min.",
        "429 slow down",
    ],
    "billing": ["429 You exceeded your current quota, please check your plan and billing details."],
    "unauthorized": ["401 invalid x-api-key"],
    "overloaded": ["529 Overloaded"],
    "context_full": ["400 prompt is too long: 213462 tokens > 200000 maximum"],
    "network": ["Connection error.", "fetch failed"],
}
AIDER_MESSAGES = {
    "rate_limited": ["litellm.RateLimitError: RateLimitError: OpenAIException - try again in 20s"],
    "unauthorized": ["litellm.AuthenticationError: AuthenticationError: OpenAIException - invalid x-api-key"],
    "context_full": ["litellm.ContextWindowExceededError: x"],
    "network": ["litellm.APIConnectionError: APIConnectionError: x"],
}
MESSAGES = [
    (name, cls, text)
    for name, messages in (
        ("claude", CLAUDE_MESSAGES),
        ("codex", CODEX_MESSAGES),
        ("qwen", QWEN_MESSAGES),
        ("gemini", GEMINI_MESSAGES),
        ("pi", PI_MESSAGES),
        ("aider", AIDER_MESSAGES),
    )
    for cls, texts in messages.items()
    for text in texts
]


def test_each_error_message_has_its_class(subtests: pytest.Subtests) -> None:
    for name, cls, text in MESSAGES:
        with subtests.test(repr((name, cls, text))):
            found = of_text(PROFILES[name], text, NOW)
            assert found is not None
            assert (found.cls, found.source) == (cls, "transcript")
            assert found.text == " ".join(text.split())


@pytest.mark.parametrize(
    ("name", "text", "seconds"),
    [
        ("claude", "You've hit your session limit · resets 8pm (America/New_York)", EIGHT - NOW),
        ("claude", "You're out of extra usage · resets 8pm (America/New_York) · /upgrade", EIGHT - NOW),
        ("claude", "You've hit your session limit · resets 8pm (Nowhere/Land)", None),
        ("claude", "You've hit your usage limit", None),
        ("codex", "You’ve hit your usage limit. Try again in 3 days 4 hours 5 minutes.", 273_900),
        ("codex", "You’ve hit your usage limit. To get more access now, or try again later.", None),
        ("qwen", "[API Error: 429 Rate limit reached, try again in 20s]", 20),
        (
            "gemini",
            "[API Error: You have exhausted your capacity. Your quota will reset after 5h20m7s.]",
            19_207,
        ),
        ("gemini", "[API Error: You exceeded your current quota. Please retry in 43.5s. (Status: X)]", 43.5),
        ("pi", "You have hit your ChatGPT usage limit (plus plan). Try again in ~45 min.", 2700),
        ("aider", "litellm.RateLimitError: RateLimitError: x - try again in 20s", 20),
    ],
)
def test_the_reset_time_is_read_from_a_limit_message(name: str, text: str, seconds: float | None) -> None:
    found = of_text(PROFILES[name], text, NOW)
    assert found is not None and found.cls == "rate_limited"
    assert found.reset_at == (None if seconds is None else NOW + seconds)


# Hooks and records: a code with the text.

STOP_FAILURES = [  # from the hooks of claude 2.1.197
    ("authentication_failed", "Please run /login · API Error: 401 scripted error 401", None, "unauthorized"),
    ("rate_limit", "You've hit your session limit · resets 8pm (America/New_York)", None, "rate_limited"),
    ("rate_limit", "You're out of usage credits. /model to switch models.", None, "billing"),
    ("invalid_request", "Prompt is too long", "400 prompt is too long: 213462 tokens", "context_full"),
    ("billing_error", "Credit balance is too low", None, "billing"),
    ("server_error", "API Error: 500 x. This is a server-side issue, usually temporary", None, "overloaded"),
    ("server_error", "API Error: Connection to the API was lost (ECONNRESET).", None, "network"),
    ("model_not_found", "There's an issue with the selected model (x).", None, "other"),
    ("unknown", "API Error", None, "other"),
    ("rate_limit", "words of a later version", None, "rate_limited"),
    ("overloaded", None, None, "overloaded"),
    ("oauth_org_not_allowed", "", None, "unauthorized"),
]


def test_a_hooks_text_takes_precedence_over_its_code(subtests: pytest.Subtests) -> None:
    for error, message, details, cls in STOP_FAILURES:
        with subtests.test(repr((error, message, details, cls))):
            fields = {"error": error, "last_assistant_message": message, "error_details": details}
            found = of_hook(CLAUDE, fields, NOW)
            assert (found.cls, found.text, found.source) == (cls, message or details or error, "hook")
            assert found.reset_at == (EIGHT if "8pm" in (message or "") else None)


@pytest.mark.parametrize("fields", [{}, {"error": None}, {"error": ["x"], "last_assistant_message": 7}])
def test_a_hook_without_details_is_still_a_failure(fields: dict[str, object]) -> None:
    assert of_hook(CLAUDE, fields, NOW) == Failure("other", "", None, "hook")


def test_a_plugins_hook_has_the_text_in_its_error() -> None:
    found = of_hook(PROFILES["opencode"], {"error": "Overloaded"}, NOW)
    assert found == Failure("overloaded", "Overloaded", None, "hook")


def test_a_record_is_classified_by_its_own_code() -> None:
    limit = "You’ve hit your usage limit. Upgrade to Pro, or try again in 2 hours."
    found = of_record(CODEX, limit, "usage_limit_exceeded", NOW)
    assert found == Failure("rate_limited", limit, NOW + 7200, "transcript")
    assert of_record(CODEX, "x", "context_window_exceeded", NOW).cls == "context_full"
    assert of_record(CODEX, "x", "http_connection_failed", NOW).cls == "network"
    assert of_record(CODEX, "unexpected status 401 x", "http_connection_failed", NOW).cls == "unauthorized"
    assert of_record(CODEX, "Quota exceeded.", "usage_limit_exceeded", NOW).cls == "billing"
    assert of_record(CODEX, "x", "", NOW).cls == "other"


# Screens.


def screens(*folders: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the agent, the state with what it shows, and the rows of each recorded screen."""
    for path in (path for folder in folders for path in sorted(folder.rglob("*.txt"))):
        rows = path.read_text("utf-8").splitlines()
        yield path.parent.name, path.stem, [row for row in rows if not row.startswith("# ")]


RECORDED = {
    ("claude", "failed-529"): "overloaded",
    ("claude", "failed-401"): "unauthorized",
    ("claude", "failed-429"): "rate_limited",
    ("claude", "failed-context-full"): "context_full",
    ("claude", "failed-continues-by-itself"): "rate_limited",
    ("claude", "failed-credit"): "billing",
    ("claude", "failed-session-limit"): "rate_limited",
    ("claude", "failed-weekly-limit"): "rate_limited",
    ("claude", "prompting-other-session-limit"): "rate_limited",
    ("claude", "prompting-other-weekly-limit"): "rate_limited",
    ("codex", "failed-401"): "unauthorized",
    ("codex", "failed-context-full"): "context_full",
    ("codex", "failed-quota"): "billing",
    ("codex", "failed-usage-limit"): "rate_limited",
    ("codex", "failed-usage-limit-days"): "rate_limited",
    ("qwen", "failed-401"): "unauthorized",
    ("copilot", "failed-401"): "unauthorized",
    ("copilot", "failed-500"): "overloaded",
    ("gemini", "failed-401"): "unauthorized",
    ("pi", "failed-401"): "unauthorized",
    ("aider", "failed-401"): "unauthorized",
}


def test_failures_are_found_on_exactly_the_screens_that_show_one() -> None:
    """R96: other screens show dialogs, tools' output, quotations and old errors, or an agent that retries."""
    found = {
        (agent, name): failure
        for agent, name, rows in screens(data.directory("patterns") / "screens", OLDER)
        if (failure := of_screen(PROFILES[agent], rows, NOW)) is not None and "-retrying" not in name
    }
    assert {key: failure.cls for key, failure in found.items()} == RECORDED
    texts = {key: failure.text for key, failure in found.items()}
    assert texts["claude", "failed-weekly-limit"].endswith(
        "weekly limit · resets Nov 29, 3:17am (America/New_York)"
    )
    assert texts["codex", "failed-usage-limit"].endswith("or try again at 11:17 AM.")  # of two rows
    for agent in ("claude", "codex"):
        limits = {key: failure for key, failure in found.items() if key[0] == agent and "limit" in key[1]}
        assert limits and all(failure.reset_at for failure in limits.values())


RULE = "─" * 60
BOX = [RULE, "❯ ", RULE, "  ? for shortcuts"]
LIMIT = "You've hit your session limit · resets 8pm (America/New_York)"
DECOYS = {
    "in the model's text": [f"● {LIMIT}", "", *BOX],
    "in the middle of its text": ["● The screen said:", "", f"  {LIMIT}", "", *BOX],
    "at its start": ["● Please run /login, as the message says.", "", *BOX],
    "in a list": ["● Two errors:", f"  - {LIMIT}", "  - API Error: 529 Overloaded", "", *BOX],
    "in a block of code": ["● Look:", "", f"    ⎿  {LIMIT}", "", *BOX],
    "in a tool's output": ["● Bash(cat limits.txt)", f"  ⎿  {LIMIT}", "", *BOX],
    "in later rows of a tool's output": ["● Bash(cat limits.txt)", "  ⎿  one", f"     {LIMIT}", "", *BOX],
    "before its next text": [f"  ⎿  {LIMIT}", "", "● Done.", "", *BOX],
    "before the next prompt": [f"  ⎿  {LIMIT}", "", "❯ go on", "", *BOX],
    "in the input": [RULE, f"❯ {LIMIT}", RULE],
    "in the output of its own command": ["❯ /model", "  ⎿  Kept model as Opus 4.8", "", *BOX],
}


@pytest.mark.parametrize("rows", DECOYS.values(), ids=DECOYS)
def test_a_quoted_error_does_not_count(rows: list[str]) -> None:
    assert of_screen(CLAUDE, rows, NOW) is None


def test_the_same_error_with_its_mark_counts() -> None:
    """Otherwise the decoys would prove nothing."""
    expected = Failure("rate_limited", LIMIT, EIGHT, "screen")
    assert of_screen(CLAUDE, ["❯ go on", f"  ⎿  {LIMIT}", "", *BOX], NOW) == expected
    assert of_screen(CLAUDE, [f"  ⎿ \N{NO-BREAK SPACE}{LIMIT}", "", "❯ /rate-limit-options"], NOW) == expected
    narrow = ["  ⎿  You've hit your session limit · resets", "     8pm (America/New_York)", "", *BOX]
    assert of_screen(CLAUDE, narrow, NOW) == expected
    both = ["  ⎿  Credit balance too low · Add funds", "", "❯ again", f"  ⎿  {LIMIT}", "", *BOX]
    assert of_screen(CLAUDE, both, NOW) == expected


@pytest.mark.parametrize(
    "rows",
    [
        ["• You’ve hit your usage limit. Try again at 8:00 PM.", "", "› Ask Codex to do anything"],
        [
            "■ You’ve hit your usage limit.",
            "",
            "› go on",
            "",
            "• Here I am.",
            "",
            "› Ask Codex to do anything",
        ],
        ["■ Conversation interrupted - tell the model what to do differently.", "", "› "],
        ["› ■ You’ve hit your usage limit.", "", "• It is a quotation.", "", "› "],
    ],
    ids=["the model's text", "an old error", "Esc", "the user's text"],
)
def test_a_codex_error_needs_a_mark_that_its_model_cannot_draw(rows: list[str]) -> None:
    assert of_screen(CODEX, rows, NOW) is None


def test_a_profile_without_a_mark_or_rules_finds_no_errors() -> None:
    generic = PROFILES["generic"]
    assert of_screen(generic, [f"  ⎿  {LIMIT}"], NOW) is None
    assert of_exit(generic, [LIMIT], NOW) is None
    assert of_text(generic, LIMIT, NOW) is None


# The last lines of a program that exits with an error.


def test_a_failure_is_found_in_the_last_lines_of_an_exited_program() -> None:
    limit = "You've hit your session limit · resets 8pm (America/New_York)"
    assert of_exit(CLAUDE, ["", limit, ""], NOW) == Failure("rate_limited", limit, EIGHT, "exit")
    wrapped = ["You've hit your session limit · resets", "8pm (America/New_York)"]
    assert of_exit(CLAUDE, wrapped, NOW) == Failure("rate_limited", limit, EIGHT, "exit")
    codex = "ERROR: You've hit your usage limit. Try again in 2 hours."
    assert of_exit(CODEX, [codex], NOW) == Failure("rate_limited", codex, NOW + 7200, "exit")
    assert of_exit(CLAUDE, [limit, *["a later line"] * 8], NOW) is None
    assert of_exit(CLAUDE, [], NOW) is None


# Any text.


@given(text=st.text(), code=st.text(), rows=st.lists(st.text(st.characters(exclude_characters="\n"))))
def test_any_text_is_a_failure_or_none(text: str, code: str, rows: list[str]) -> None:
    for profile in PROFILES.values():
        found = [of_hook(profile, {"error": code, "last_assistant_message": text}, NOW)]
        found.append(of_record(profile, text, code, NOW))
        drawn = [f"■ {row}" for row in rows]
        found += filter(None, (of_text(profile, text, NOW), of_exit(profile, rows, NOW)))
        found += filter(None, (of_screen(profile, rows, NOW), of_screen(profile, drawn, NOW)))
        for failure in found:
            assert len(failure.text) <= MAX_TEXT and "\n" not in failure.text
            assert failure.reset_at is None or failure.reset_at > NOW
            assert Failure.from_json(failure.to_json()) == failure


def test_an_unmatched_reset_group_gives_no_reset_time() -> None:
    """A user's regex may have the group in only one of two branches."""
    rule = ErrorRule(
        "rate_limited", (re.compile("limit"),), (re.compile(r"limit(?: until (?P<reset>\w+))?"),)
    )
    profile = replace(PROFILES["generic"], errors=(rule,))
    for text, reset in (("limit", None), ("limit until 8pm", True)):
        found = of_text(profile, text, NOW)
        assert found is not None and (found.reset_at is not None) == bool(reset)
