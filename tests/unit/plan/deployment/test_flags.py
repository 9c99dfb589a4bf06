"""Flags as recipes say them, and who may say which."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.base.errors import InputError
from remuda.plan.deployment.flags import merged, words


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


def test_a_flag_of_the_launcher_may_be_said_again_and_not_otherwise() -> None:
    own = {"--disaggregation-mode": "prefill"}
    assert merged(own, {"disaggregation_mode": "prefill", "x": 1}, "roles.prefill.args") == {**own, "--x": 1}
    with pytest.raises(InputError) as error:
        merged(own, {"disaggregation-mode": "decode"}, "roles.prefill.args")
    assert error.value.where == "roles.prefill.args.disaggregation-mode"
    assert "--disaggregation-mode is set to 'prefill' for each worker" in error.value.message
