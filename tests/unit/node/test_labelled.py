"""What other nodes print is passed on with their names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from remuda.node.guard.labelled import MAX_LINE, Labelled, named

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(b"0: hello", b"[gpu-2] hello", id="the first task is rank 1"),
        pytest.param(b" 1: a: b", b"[gpu-3] a: b", id="padded"),
        pytest.param(b"0: ", b"[gpu-2] ", id="empty"),
        pytest.param(b"7: hello", b"7: hello", id="nobody knows that one"),
        pytest.param(b"srun: error: gpu-2: task 0: Killed", b"srun: error: gpu-2: task 0: Killed", id="srun itself"),
        pytest.param(b"", b"", id="nothing"),
    ],
)
def test_named(line: bytes, expected: bytes) -> None:
    assert named(line, {1: "gpu-2", 2: "gpu-3"}) == expected


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    os.close(ends[0])


def test_lines_are_passed_on_whole(pipe: tuple[int, int], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    source = Labelled(pipe[0], {1: "gpu-2"})
    source.pass_on()
    os.write(pipe[1], b"0: one\n0: tw")
    source.pass_on()
    assert capfdbinary.readouterr().out == b"[gpu-2] one\n"
    os.write(pipe[1], b"o\n0: the last")
    source.pass_on()
    os.close(pipe[1])
    source.pass_on()
    source.pass_on()
    assert capfdbinary.readouterr().out == b"[gpu-2] two\n[gpu-2] the last\n"


def test_a_line_without_an_end_is_no_burden(pipe: tuple[int, int], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    source = Labelled(pipe[0], {1: "gpu-2"})
    os.write(pipe[1], b"0: " + b"x" * 2 * MAX_LINE)
    source.pass_on()
    os.close(pipe[1])
    assert capfdbinary.readouterr().out == b"[gpu-2] " + b"x" * 2 * MAX_LINE + b"\n"


def test_what_slurm_says_of_an_end_that_was_wanted(
    pipe: tuple[int, int], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    source = Labelled(pipe[0], {1: "gpu-2"})
    said = (
        b"0: slurmstepd-gpu-2: error: *** STEP 3.1 ON gpu-2 CANCELLED AT now ***\nsrun: error: gpu-2: task 0: Killed\n"
    )
    os.write(pipe[1], said)
    source.pass_on()
    os.write(pipe[1], b"0: the last word\n" + said)
    source.pass_on(ended=True)
    os.close(pipe[1])
    shown = capfdbinary.readouterr().out.splitlines()
    assert shown[2:] == [b"[gpu-2] the last word"], shown
    assert len(shown) == 3, "it counts where the step ended by itself"
