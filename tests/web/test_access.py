"""Tokens, sessions and clicks are used once, in time, by whom they are for."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from relay.errors import NotAllowed
from relay.web import access
from relay.web.access import CLICK_SECONDS, MOST_SESSIONS, OPENED, PRINTED, TOKEN_SECONDS, Access, TooMany

ALL = {PRINTED, OPENED}


class Time:
    """The clock of relay.web.access."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(access, "time", clock)
    return clock


def wrong(own: Access, token: str = "wrong", ways: set[str] = ALL) -> None:
    with pytest.raises(NotAllowed):
        own.open(token, ways)


def test_a_token_lasts_a_minute(time: Time) -> None:
    own = Access()
    token = own.new_token(PRINTED)
    time.now += TOKEN_SECONDS
    wrong(own, token)
    token = own.new_token(PRINTED)
    time.now += TOKEN_SECONDS - 1
    assert own.session(own.open(token, ALL))
    wrong(own, token)
    wrong(own, "")


def test_a_token_that_others_see_opens_nothing_for_an_unknown_process(time: Time) -> None:
    own = Access()
    printed, opened = own.new_token(PRINTED), own.new_token(OPENED)
    wrong(own, opened, {PRINTED})
    assert own.session(own.open(printed, {PRINTED}))
    assert own.session(own.open(opened, ALL))


def test_five_wrong_tokens_in_a_minute_lock_for_a_minute(time: Time) -> None:
    own = Access()
    for _ in range(4):
        wrong(own)
    time.now += 61
    for _ in range(5):
        wrong(own)
    token = own.new_token(PRINTED)
    with pytest.raises(TooMany):
        own.open(token, ALL)
    time.now += 61
    wrong(own, token)  # too old by now
    assert own.session(own.open(own.new_token(PRINTED), ALL))


def test_the_session_that_was_used_longest_ago_gives_way(time: Time) -> None:
    own = Access()
    cookies = [own.open(own.new_token(PRINTED), ALL) for _ in range(MOST_SESSIONS)]
    closed: list[int] = []
    pages = ExitStack()
    for number, cookie in enumerate(cookies):
        time.now += 1
        session = own.session(cookie)
        assert session is not None
        pages.enter_context(session.closes(lambda number=number: closed.append(number)))
    time.now += 1
    own.session(cookies[0])
    own.open(own.new_token(PRINTED), ALL)
    assert closed == [1]
    assert own.session(cookies[1]) is None
    assert own.session(cookies[0]) is not None


def test_a_click_is_for_one_agent_once_and_soon(time: Time) -> None:
    own = Access()
    session, other = (own.session(own.open(own.new_token(PRINTED), ALL)) for _ in range(2))
    assert session is not None
    assert other is not None
    alice, bob = ("default", "alice"), ("default", "bob")
    session.confirm(alice, takeover=True)
    for each, agent in ((session, bob), (other, alice)):
        with pytest.raises(NotAllowed):
            each.take_click(agent)
    assert session.take_click(alice) is True
    with pytest.raises(NotAllowed):
        session.take_click(alice)
    session.confirm(alice, takeover=False)
    time.now += CLICK_SECONDS
    with pytest.raises(NotAllowed):
        session.take_click(alice)


def test_a_session_closes_what_is_open_in_it_once(time: Time) -> None:
    own = Access()
    cookie = own.open(own.new_token(PRINTED), ALL)
    session = own.session(cookie)
    assert session is not None
    closed: list[str] = []
    with session.closes(lambda: closed.append("page")):
        with session.closes(lambda: closed.append("left")):
            pass
        own.close(session)
    assert closed == ["page"]
    assert own.session(cookie) is None
    with session.closes(lambda: closed.append("late")):
        assert closed == ["page", "late"]


def test_neither_tokens_nor_cookies_are_kept() -> None:
    own = Access()
    token = own.new_token(PRINTED)
    assert token not in repr(vars(own))
    cookie = own.open(token, ALL)
    assert cookie not in repr(vars(own))
