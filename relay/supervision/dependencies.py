"""The order of agents that depend on one another."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter


def ordered(depends_on: Mapping[str, Collection[str]]) -> list[str]:
    """Return the keys of `depends_on`, each after those it depends on, otherwise in their given order.

    Raise ValueError with the text `a → b → a` if there is a cycle.
    """
    place = {name: number for number, name in enumerate(depends_on)}
    sorter = TopologicalSorter(depends_on)
    try:
        sorter.prepare()
    except CycleError as error:
        raise ValueError(" → ".join(reversed(error.args[1]))) from None
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=place.__getitem__)
        order += ready
        sorter.done(*ready)
    return order


def needed(names: Collection[str], depends_on: Mapping[str, Collection[str]]) -> set[str]:
    """Return `names` and everything they depend on, directly or indirectly."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += depends_on[name]
    return found
