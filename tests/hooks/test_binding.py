"""The arguments of a handler are bound to its parameters."""

import functools

import pytest

from relay.errors import ConfigError
from relay.hooks.binding import bind, is_async

VALUES = {"target": "T", "message": "M", "ctx": "C", "event": "E", "sender": "S", "body": "B"}


def call(function, main=("target", "message", "ctx"), fields=()):
    args, kwargs = bind(function, main, fields).arguments(VALUES)
    return function(*args, **kwargs)


class Object:
    def __call__(self, target, ctx):
        return target, ctx

    def method(self, ctx, target):
        return ctx, target


def keyword_only(*, ctx, target):
    return ctx, target


def positional_only(a, b, /, ctx):
    return a, b, ctx


PATTERN_HANDLERS = [
    (lambda target, message, ctx: (target, message, ctx), ("T", "M", "C")),
    (lambda ctx, target: (ctx, target), ("C", "T")),
    (lambda where, what, context: (where, what, context), ("T", "M", "C")),
    (lambda target, text, ctx: (target, text, ctx), ("T", "M", "C")),
    (lambda ctx, first: (ctx, first), ("C", "T")),
    (lambda: "nothing", "nothing"),
    (lambda a, b=7: (a, b), ("T", 7)),
    (lambda a=7, ctx=None: (a, ctx), (7, "C")),
    (lambda *everything: everything, ("T", "M", "C")),
    (lambda target, *rest: (target, rest), ("T", ("M", "C"))),
    (lambda target, **others: (target, others), ("T", {})),
    (keyword_only, ("C", "T")),
    (positional_only, ("T", "M", "C")),
    (Object(), ("T", "C")),
    (Object().method, ("C", "T")),
    (functools.partial(lambda extra, target: (extra, target), "X"), ("X", "T")),
]


def test_a_pattern_handler_gets_the_values_of_its_parameters(subtests: pytest.Subtests):
    """R49"""
    for function, result in PATTERN_HANDLERS:
        with subtests.test(repr(result)):
            assert call(function) == result


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (lambda event, ctx: (event, ctx), ("E", "C")),
        (lambda ctx: ctx, "C"),
        (lambda event: event, "E"),
        (lambda e, c: (e, c), ("E", "C")),
        (lambda sender, body, ctx: (sender, body, ctx), ("S", "B", "C")),
        (lambda body: body, "B"),
    ],
)
def test_an_event_handler_may_take_the_fields_of_its_event(function, result):
    """R53, R55"""
    assert call(function, ("event", "ctx"), ("sender", "body")) == result


@pytest.mark.parametrize(
    ("function", "main", "message"),
    [
        (lambda a, b, c, d: None, ("target", "message", "ctx"), "'d' of <lambda> has no value to receive"),
        (
            lambda sendr, body: None,
            ("event", "ctx"),
            "'sendr' .* Use parameter names from: event, ctx, sender",
        ),
        (lambda *, other: other, (), "'other'"),
        ("text", ("event", "ctx"), "must be a function, not 'text'"),
        (None, ("event", "ctx"), "must be a function, not None"),
    ],
)
def test_a_handler_that_cannot_be_bound_is_refused(function, main, message):
    with pytest.raises(ConfigError, match=message):
        bind(function, main, ("sender", "body"))


def test_async_callables_are_recognized():
    async def coroutine(ctx): ...

    class Callable:
        async def __call__(self, ctx): ...

    assert is_async(coroutine)
    assert is_async(functools.partial(coroutine, None))
    assert is_async(Callable())
    assert not is_async(lambda ctx: None)
