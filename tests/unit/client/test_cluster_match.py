"""Whether a command says that the host does not reach the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.client.streams import Streaming

from remuda.client.cluster_match import silence
from remuda.supervise.facts import UNANSWERED


class Host(Streaming):
    """Answers with one view after the other, and says that there is another one."""

    def __init__(self, *views: dict[str, Any]) -> None:
        self._views = list(views)
        self.told = len(views)

    def get(self, _: str) -> dict[str, Any]:
        return self._views.pop(0)


def view(phase: str, reason: str = "", *, native: str = "", unreachable: str = "") -> dict[str, Any]:
    return {
        "name": "herd", "unreachable": unreachable, "tasks": [{"phase": phase, "reason": reason, "native": native}],
    }  # fmt: skip


FIRST = view("submitting", "first attempt")


@pytest.mark.parametrize(
    ("views", "said"),
    [
        pytest.param([view("pending", native="12")], "", id="submitted"),
        pytest.param([FIRST, FIRST, view("pending", native="12")], "", id="submitted after a while"),
        pytest.param([FIRST, view("waiting", "sbatch refused")], "", id="refused"),
        pytest.param([FIRST, FIRST], "", id="not yet"),
        pytest.param([FIRST, view("submitting", f"{UNANSWERED}no squeue")], "no squeue", id="no answer to sbatch"),
        pytest.param([view("submitting", "first attempt", unreachable="no squeue")], "no squeue", id="none to squeue"),
    ],
)
def test_silence(views: list[dict[str, Any]], said: str) -> None:
    host: Any = Host(*views[1:])
    assert silence(views[0], host, limit_s=0.3) == said
