"""Results of several resources, errors with advice, and the blocking twin of every method."""

from __future__ import annotations

import inspect
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

import barnabas.admin
from barnabas.admin import Admin, AsyncAdmin, ResourceError, Results, families
from barnabas.admin.looping import Family
from barnabas.wire.errors import ErrorCode

REFUSED = ResourceError(ErrorCode.TOPIC_ALREADY_EXISTS, "create", "topic b", "Topic 'b' already exists.")


def test_a_failure_is_raised_where_it_is_asked_for() -> None:
    results: Results[str, int] = Results({"a": 1}, {"b": REFUSED})
    assert results["a"] == 1
    with pytest.raises(ResourceError):
        _ = results["b"]
    with pytest.raises(KeyError):
        _ = results["c"]
    with pytest.raises(ResourceError):
        results.require()
    assert list(results) == ["a", "b"]
    assert len(results) == 2
    assert "b" in results


def test_expected_failures_are_left_out() -> None:
    results: Results[str, int] = Results({"a": 1}, {"b": REFUSED})
    assert results.except_for(ErrorCode.TOPIC_ALREADY_EXISTS).require() == {"a": 1}
    assert results.except_for(ErrorCode.INVALID_TOPIC_EXCEPTION).failed == {"b": REFUSED}
    assert results.map(str).done == {"a": "1"}


def test_an_error_tells_what_was_refused_and_what_to_do() -> None:
    assert str(REFUSED) == (
        "cannot create topic b: Topic 'b' already exists; choose another name, or delete it first "
        "(TOPIC_ALREADY_EXISTS)"
    )
    assert (REFUSED.resource, REFUSED.reason, REFUSED.name) == (
        "topic b",
        "Topic 'b' already exists.",
        "TOPIC_ALREADY_EXISTS",
    )
    assert str(ResourceError(9999, "move", "broker 1")) == "cannot move broker 1: error 9999 (error 9999)"


def family_classes() -> list[tuple[str, type[Any], type[Any]]]:
    """The name, the asynchronous class and the blocking class of each family."""
    family_rows = []
    for module in iter_modules(families.__path__):
        names = vars(import_module(f"{families.__name__}.{module.name}"))
        for item in names.values():
            if isinstance(item, type) and issubclass(item, Family) and item is not Family:
                (base,) = [base for base in vars(item)["__orig_bases__"] if hasattr(base, "__args__")]
                family_rows.append((module.name, base.__args__[0], item))
    return family_rows


@pytest.mark.parametrize(("name", "asynchronous", "blocking"), family_classes())
def test_every_method_has_a_blocking_twin(name: str, asynchronous: type[Any], blocking: type[Any]) -> None:
    def public(kind: type[Any]) -> set[str]:
        return {key for key, value in inspect.getmembers(kind) if callable(value) and key[0] != "_"}

    assert public(blocking) == public(asynchronous)
    assert hasattr(AsyncAdmin, name)
    assert hasattr(Admin, name)
    for method in public(blocking):
        assert inspect.signature(getattr(blocking, method)) == inspect.signature(
            getattr(asynchronous, method)
        )
        assert getattr(blocking, method).__doc__, f"{name}.{method} has no docstring"


def test_every_public_name_is_there() -> None:
    for name in barnabas.admin.__all__:
        assert getattr(barnabas.admin, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = barnabas.admin.nothing
