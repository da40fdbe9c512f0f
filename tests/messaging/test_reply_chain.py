"""The depth of an agent's messages in a chain of replies, and which message each one answers."""

from __future__ import annotations

from relay.message import Message
from relay.messaging.reply_chain import ReplyChain


def test_an_unprompted_message_starts_a_chain() -> None:
    chain = ReplyChain()
    chain.sent()
    assert chain.depth == 1


def test_an_answer_is_one_level_deeper_than_its_message() -> None:
    chain = ReplyChain()
    for depth in (7, 9, 2):
        chain.given(depth, begins=True)
        assert chain.depth == depth + 1
        chain.sent()
        assert chain.depth == depth + 1  # for everything sent in that turn


def test_another_message_in_the_same_turn_does_not_reduce_the_depth() -> None:
    chain = ReplyChain()
    chain.given(7, begins=True)
    chain.given(2, begins=False)
    assert chain.depth == 8
    chain.sent()
    chain.given(2, begins=False)
    assert chain.depth == 3


def test_a_new_turn_forgets_unanswered_messages() -> None:
    chain = ReplyChain()
    chain.given(49, begins=True)
    chain.given(1, begins=True)
    assert chain.depth == 2


def test_typed_sent_or_released_user_input_starts_a_new_chain() -> None:
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
