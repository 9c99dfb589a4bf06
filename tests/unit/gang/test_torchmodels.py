"""What processes of one copy say of their parameters, and which of them is refused; the rest is `make gang-torch`."""

from __future__ import annotations

import pytest

from remuda.base.errors import InputError
from remuda.gang.torchmodels import refuse_different

ALIKE = {"a": "(2,) f32 17", "b": "(4,) f32 (Shard(dim=0),)"}


@pytest.mark.parametrize(
    ("second", "words"),
    [
        pytest.param({**ALIKE, "a": "(2,) f32 18"}, "parameter a is not a DTensor and differs", id="other values"),
        pytest.param({"a": ALIKE["a"]}, "parameter b is not in all processes", id="one missing"),
        pytest.param({**ALIKE, "c": "(1,) f32 1"}, "parameter c is not in all processes", id="one more"),
        pytest.param({**ALIKE, "b": "!lies on 1 of the 2 processes"}, "parameter b lies on 1 of", id="refused"),
    ],
)
def test_what_is_not_known_is_refused_with_its_name(second: dict[str, str], words: str) -> None:
    for told in ([ALIKE, second], [second, ALIKE]):
        with pytest.raises(InputError, match=words):
            refuse_different(told)


def test_what_is_alike_is_taken() -> None:
    refuse_different([ALIKE, dict(ALIKE)])
