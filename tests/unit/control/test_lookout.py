"""What is shown when a user does not say which task."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.supervise.test_succession import LEAVING, NEW, OLD, WANT

from remuda.control.lookout import main_task
from remuda.supervise.model import Phase, Task
from remuda.supervise.succession import HEIR


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        pytest.param([], 0, id="nothing was begun"),
        pytest.param([OLD], 0, id="no heir"),
        pytest.param([OLD, replace(NEW, phase=Phase.PENDING)], 0, id="the heir waits"),
        pytest.param([LEAVING, NEW], HEIR, id="the heir has taken over"),
    ],
)
def test_the_task_that_serves(tasks: list[Task], expected: int) -> None:
    group = WANT.workload.groups[0].name
    assert main_task(WANT, {task.key: task for task in tasks}) == f"{group}/{expected}"
