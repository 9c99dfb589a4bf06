"""Flags as recipes say them, and who may say which."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.base.errors import InputError
from remuda.plan.engines.flags import counted, merged, words


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"tp_size": 4}, ("--tp-size", "4")),
        ({"tp-size": 4, "--trust-remote-code": True}, ("--tp-size", "4", "--trust-remote-code")),
        ({"disable_x": False, "y": None}, ()),
        ({"sizes": [1, 2]}, ("--sizes", "1", "2")),
        ({"config": {"a": 1}}, ("--config", '{"a": 1}')),
        ({"text": "$(reboot) 'x'"}, ("--text", "$(reboot) 'x'")),
    ],
)
def test_words(flags: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert words(flags) == expected


@pytest.mark.parametrize(
    ("said", "counts"),
    [
        ({"x": 1, "y": None, "z": False}, {"x": 1, "z": False}),
        ({"tensor-parallel-size": 4, "x": 1, "tp_size": 8}, {"x": 1, "tp_size": 8}),
        ({"--tp": 8, "tensor-parallel-size": 8}, {"tensor-parallel-size": 8}),
        ({"tp-size": 4, "tensor-parallel-size": None}, {"tp-size": 4}),
        ({"max_len": 1, "max-len": 2}, {"max-len": 2}),
        ({"tp-size": 4, "dp-size": 2, "ep-size": 4}, {"tp-size": 4, "dp-size": 2, "ep-size": 4}),
    ],
)  # fmt: skip
def test_of_two_names_of_a_flag_the_later_counts(said: dict[str, Any], counts: dict[str, Any]) -> None:
    assert counted(said) == counts


def test_a_flag_of_the_launcher_may_be_said_again_and_not_otherwise() -> None:
    own = {"--disaggregation-mode": "prefill"}
    assert merged(own, {"disaggregation_mode": "prefill", "x": 1}, "roles.prefill.args") == {**own, "--x": 1}
    with pytest.raises(InputError) as error:
        merged(own, {"disaggregation-mode": "decode"}, "roles.prefill.args")
    assert error.value.where == "roles.prefill.args.disaggregation-mode"
    assert "--disaggregation-mode is set to 'prefill' for each worker" in error.value.message
