"""Rules between groups that could never be followed are refused before anything is recorded."""

from __future__ import annotations

import pytest
from tests.unit.supervise.build import group, workload

from remuda.base.errors import InputError
from remuda.plan.model import Replace, Workload
from remuda.plan.order import check


def made(ends_with: str | None = None, **after: tuple[str, ...]) -> Workload:
    """Groups of these names, the last of which is never replaced."""
    groups = [group(name).model_copy(update={"after": names}) for name, names in after.items()]
    groups[-1] = groups[-1].model_copy(update={"replace": Replace(policy="never")})
    return workload(*groups).model_copy(update={"ends_with": ends_with})


@pytest.mark.parametrize(
    "accepted", [made(a=()), made(a=("b",), b=()), made(a=(), b=("a",), c=("a", "b"), ends_with="c"), workload()]
)
def test_an_order_that_can_be_followed(accepted: Workload) -> None:
    check(accepted)


@pytest.mark.parametrize(
    ("refused", "message", "hint"),
    [
        (made(a=(), b=("a", "c")), "b.after: there is no group 'c'", "known: a, b"),
        (made(a=("a",)), "groups wait for each other: a → a", "remove one of them from `after`"),
        (made(a=("b",), b=("c",), c=("a",)), "groups wait for each other: ", "remove one of them from `after`"),
        (made(a=(), ends_with="b"), "ends_with: there is no group 'b'", "known: a"),
        (made(a=(), b=(), ends_with="a"), "the workload ends with a, so that is never replaced",
         'set its replace.policy to "never", or another group'),
    ],
)  # fmt: skip
def test_one_that_cannot(refused: Workload, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        check(refused)
    assert str(caught.value).startswith(message)
    assert caught.value.hint == hint
