"""The depth of an agent's messages in a chain, and which message they answer."""

from __future__ import annotations

from relay.message import Message
from relay.messaging.reply_chain import ReplyChain


def test_an_agent_by_itself_begins_a_chain() -> None:
    chain = ReplyChain()
    chain.sent()
    assert chain.depth == 1


def test_an_answer_is_one_deeper_than_what_it_answers() -> None:
    chain = ReplyChain()
    for depth in (7, 9, 2):
        chain.given(depth, begins=True)
        assert chain.depth == depth + 1
        chain.sent()
        assert chain.depth == depth + 1  # of everything said in that turn


def test_what_comes_in_the_same_turn_makes_it_no_less_deep() -> None:
    chain = ReplyChain()
    chain.given(7, begins=True)
    chain.given(2, begins=False)
    assert chain.depth == 8
    chain.sent()
    chain.given(2, begins=False)
    assert chain.depth == 3


def test_a_new_turn_forgets_what_was_never_answered() -> None:
    chain = ReplyChain()
    chain.given(49, begins=True)
    chain.given(1, begins=True)
    assert chain.depth == 2


def test_the_users_word_begins_anew_typed_or_sent_or_released() -> None:
    chain = ReplyChain()
    chain.given(7, begins=True)
    chain.given(0, begins=False)
    assert chain.depth == 1
    chain.given(7, begins=False)
    chain.user_spoke()
    assert chain.depth == 1


def test_a_message_answers_the_last_one_from_its_receiver() -> None:
    chain = ReplyChain()
    for id, sender in (("1", "Alice"), ("2", "alice"), ("3", "Carol")):
        chain.received(Message(id, sender, "Bob", "text", 0.0))
    assert [each and each.id for each in map(chain.answers, ("ALICE", "carol", "Dan", "*"))] == [
        "2",
        "3",
        None,
        None,
    ]
    chain.user_spoke()
    assert chain.answers("Alice") is None
