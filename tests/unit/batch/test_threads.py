"""What a job changes of the process that runs it, it puts back."""

from __future__ import annotations

import gc

from remuda.batch.threads import collecting_seldom


def test_garbage_is_looked_for_as_before_when_a_job_has_ended() -> None:
    before = gc.get_threshold()
    with collecting_seldom():
        assert gc.isenabled()
        assert gc.get_threshold() > before
    assert gc.get_threshold() == before
