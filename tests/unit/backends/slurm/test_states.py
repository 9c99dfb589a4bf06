from __future__ import annotations

import pytest

from remuda.backends.base import Ending, Life
from remuda.backends.slurm.parsing.states import STATES, read_state
from remuda.base.errors import Rejected


@pytest.mark.parametrize(
    ("raw", "word", "uid"),
    [
        ("RUNNING", "RUNNING", ""),
        ("CANCELLED by 1000", "CANCELLED", "1000"),
        ("CANCELLED+", "CANCELLED", ""),
        ("RUNNING,COMPLETING", "COMPLETING", ""),
        ("PENDING,REQUEUED", "REQUEUED", ""),
        (" OUT_OF_MEMORY ", "OUT_OF_MEMORY", ""),
    ],
)
def test_states_are_read(raw: str, word: str, uid: str) -> None:
    assert read_state(raw) == (word, uid)


@pytest.mark.parametrize("raw", ["HIBERNATING", "", "RUNNING,HIBERNATING", "cancelled by me", "CANCELLED by root"])
def test_an_unknown_word_is_an_error_with_its_raw_text(raw: str) -> None:
    with pytest.raises(Rejected) as caught:
        read_state(raw)
    assert str(caught.value) == f"Slurm says that a job's state is {raw!r}, which this version does not know"


def test_only_ended_states_have_endings() -> None:
    for word, state in STATES.items():
        assert state.life is Life.ENDED or state.ending is Ending.NONE, word


#: Every word of `job_state_string` in Slurm 22.05 to 25.05.
OF_SLURM = """
PENDING RUNNING SUSPENDED COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE
OUT_OF_MEMORY COMPLETING CONFIGURING RESIZING REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT STOPPED REVOKED
RESV_DEL_HOLD SIGNALING STAGE_OUT LAUNCH_FAILED RECONFIG_FAIL POWER_UP_NODE EXPEDITING
"""


def test_every_word_of_slurms_is_in_the_table() -> None:
    assert set(OF_SLURM.split()) <= set(STATES)


def test_what_still_holds_its_node_is_running() -> None:
    assert {word for word, state in STATES.items() if state.life is Life.RUNNING} == {
        "RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "RESIZING", "SUSPENDED", "STOPPED", "UPDATE_DB",
    }  # fmt: skip
