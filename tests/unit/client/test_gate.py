"""What counts as an answer of a deployment that was brought up."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from remuda.client.gate import tokens_of
from remuda.host.app import ScaleBody


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ({"usage": {"completion_tokens": 4}}, 4),
        ({"usage": {"completion_tokens": True}}, 0),
        ({"usage": {"completion_tokens": True}, "choices": [{"text": "so"}]}, 1),
        ({"usage": {"completion_tokens": "4"}}, 0),
        ([1], 0),
    ],
    ids=str,
)
def test_tokens_of_an_answer(answer: Any, tokens: int) -> None:
    assert tokens_of(answer) == tokens


def test_true_is_no_number_of_tasks() -> None:
    assert ScaleBody.model_validate({"groups": {"decode": 2}}).groups == {"decode": 2}
    for body in ({"groups": {"decode": True}}, {"groups": {"decode": "2"}}, {"replicas": True}):
        with pytest.raises(ValidationError):
            ScaleBody.model_validate(body)
