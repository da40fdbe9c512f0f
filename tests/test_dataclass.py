"""relay.dataclass makes classes that behave as those of the standard library's decorator."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from relay.dataclass import asdict, dataclass, field, fields, replace


def make(decorator: Any, field: Any) -> tuple[type, type, type]:
    @decorator(frozen=True, slots=True)
    class Point:
        """Documented."""

        made: ClassVar[int] = 0
        x: int
        y: int = 2
        tags: Mapping[str, list[int]] = field(default_factory=dict, compare=False)
        secret: str = field(default="s", repr=False, kw_only=True)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

    @decorator(frozen=True, slots=True)
    class Named(Point):  # type: ignore[misc]
        name: str = ""
        y: int = 3

        def __repr__(self) -> str:
            return f"<{self.name}>"

    @decorator(eq=False, slots=True)
    class Counter:
        start: int
        _seen: list[int] = field(default_factory=list, init=False)
        _most: int = field(default=9, init=False)

    return Point, Named, Counter


OURS, STANDARD = make(dataclass, field), make(dataclasses.dataclass, dataclasses.field)


@pytest.mark.parametrize(("point", "named", "counter"), [OURS, STANDARD], ids=["ours", "standard"])
def test_the_classes_behave_as_those_of_the_standard_library(point: Any, named: Any, counter: Any) -> None:
    one = point(1, tags={"a": [1]}, secret="t")
    assert (one.x, one.y, one.secret, point.made) == (1, 2, "t", 0)
    assert repr(one).endswith("Point(x=1, y=2, tags={'a': [1]})")
    assert one == point(1, secret="t") != point(1) != named(1, 2)
    assert hash(one) == hash(point(1, secret="t")) != hash(point(1))
    assert one == copy.deepcopy(one) is not one
    assert point.__match_args__ == ("x", "y", "tags")
    assert repr(named(1, name="n")) == "<n>" and named(1).y == 3
    assert not hasattr(one, "__dict__") and point.__doc__ == "Documented."
    for wrong in (lambda: point(), lambda: point(1, 2, {}, "t"), lambda: point(1, other=2)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="negative"):
        point(-1)
    for change in (lambda: setattr(one, "x", 2), lambda: delattr(one, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError, match=r"cannot \w+( to)? field 'x'"):
            change()
    first, second = counter(1), counter(1)
    first.start = 5
    assert first != second and len({first, second}) == 2
    assert (first._seen, first._most) == ([], 9) and first._seen is not second._seen
    with pytest.raises(TypeError):
        counter(1, [])


def test_both_sets_of_functions_take_our_classes() -> None:
    point, named, counter = OURS
    one = named(1, tags={"a": [1]}, secret="t", name="n")
    plain = {"x": 1, "y": 3, "tags": {"a": [1]}, "secret": "t", "name": "n"}
    assert asdict(one) == dataclasses.asdict(one) == plain
    assert replace(counter(1), start=2).start == 2
    assert replace(one, x=2) == dataclasses.replace(one, x=2) == named(2, secret="t", name="n")
    for ours, standard in ((point, STANDARD[0]), (counter, STANDARD[2])):
        told = [
            [
                (each.name, each.type, each.init, each.compare, each.kw_only, dict(each.metadata))
                for each in of
            ]
            for of in (fields(ours), dataclasses.fields(ours), dataclasses.fields(standard))
        ]
        assert told[0] == told[1] == told[2]

    @dataclasses.dataclass(frozen=True)
    class Users(point):  # type: ignore[misc, valid-type]
        more: int = 0

    assert Users(1, more=2).more == 2 and dataclasses.is_dataclass(point)


def test_nested_values_become_plain() -> None:
    @dataclass(frozen=True, slots=True)
    class Inner:
        n: int

    @dataclass(frozen=True, slots=True)
    class Outer:
        inner: Inner
        many: tuple[Inner, ...]
        by_name: Mapping[str, Inner]

    assert asdict(Outer(Inner(1), (Inner(2),), {"a": Inner(3)})) == {
        "inner": {"n": 1},
        "many": ({"n": 2},),
        "by_name": {"a": {"n": 3}},
    }
