"""Groups that wait for each other, with a real host and real processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.component.ordered import life, ordered, post

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from tests.conftest import Home


def test_a_deployment_of_four_groups(home: Home) -> None:
    life(home, "local", {})


def test_groups_that_would_wait_for_ever_are_refused(home: Home) -> None:
    home.run("host", "start")
    made = ordered(home, "local", {})
    groups = [group.model_copy(update={"after": ("front",)}) if group.name == "service" else group
              for group in made.groups]  # fmt: skip
    with pytest.raises(InputError, match=r"^groups wait for each other: .*front"):
        post(home, made.model_copy(update={"groups": tuple(groups)}))
