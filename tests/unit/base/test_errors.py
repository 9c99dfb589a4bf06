from __future__ import annotations

import asyncio
import re
import time

import pytest

from remuda.base import errors
from remuda.base.clock import SystemClock
from remuda.base.errors import InputError, RemudaError, located


def tree(root: type[RemudaError] = RemudaError) -> list[type[RemudaError]]:
    return [root, *(found for child in root.__subclasses__() for found in tree(child))]


OURS = [kind for kind in tree() if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_is_drawn_with_its_exit_code(kind: type[RemudaError]) -> None:
    drawn = re.search(rf"\b{kind.__name__}\b +(\d+)?", f"{errors.__doc__} ".replace("\n", " \n"))
    assert drawn is not None
    if drawn.group(1):
        assert int(drawn.group(1)) == kind.exit_code
    else:
        assert kind.exit_code == kind.__mro__[1].exit_code  # type: ignore[attr-defined]


def test_branches_have_codes_of_their_own() -> None:
    branches = [kind.exit_code for kind in OURS if kind is RemudaError or RemudaError in kind.__bases__]
    assert len(branches) == len(set(branches))
    assert all(0 < code < 131 for code in branches)


def test_message_and_hint() -> None:
    error = RemudaError("swarm 'a' is down", hint="bring it up")
    assert (str(error), error.message, error.hint) == ("swarm 'a' is down", "swarm 'a' is down", "bring it up")


def test_an_input_error_says_where() -> None:
    assert str(InputError("no such key", where="swarm.yaml:7:3")) == "swarm.yaml:7:3: no such key"
    assert str(InputError("no such key")) == "no such key"


def test_the_clock_is_that_of_the_machine() -> None:
    before = time.time()
    clock = SystemClock()
    assert before - 5 < clock.now() < time.time() + 5
    begin = time.monotonic()
    asyncio.run(clock.sleep(0.01))
    assert time.monotonic() - begin >= 0.009


@pytest.mark.parametrize(("where", "words"), [("", "--mem: is no size"), ("job.yaml:3", "job.yaml:3: is no size")])
def test_what_is_wrong_within_is_told_of_its_place(where: str, words: str) -> None:
    with pytest.raises(InputError) as caught, located("--mem"):
        raise InputError("is no size", hint="write 8GB", where=where)
    assert (str(caught.value), caught.value.hint) == (words, "write 8GB")
