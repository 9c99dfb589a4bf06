"""Whatever is flipped, overwritten or cut in a checkpoint: no wrong answer, no good record lost, the job goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.base.errors import Conflict, RemudaError
from remuda.batch.output.checkpoint import Checkpoint, encode_error
from remuda.batch.output.log import HEAD_BYTES, scan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.batch.request import Summary

    Run = Callable[..., tuple[list[Any], Summary]]

PROMPTS = [f"row {number}" for number in range(12)]
FILES = ("results.log", "job.json", "progress.json", "output.json", "lock")
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def finished(folder: Path, echo: Run) -> Path:
    """A finished job in `folder`; returns its checkpoint."""
    (folder / "in.jsonl").write_bytes(b"".join(orjson.dumps({"prompt": text}) + b"\n" for text in PROMPTS))
    asked, _ = echo(folder / "in.jsonl", folder / "out.jsonl")
    assert sorted(asked) == sorted(PROMPTS)
    return folder / "out.jsonl.checkpoint"


def prompts_of_records(log: Path) -> list[tuple[int, int, str]]:
    """Begin, end and prompt of each row's record."""
    return [
        (offset, offset + HEAD_BYTES + len(payload), PROMPTS[int.from_bytes(payload[:8], "little")])
        for offset, payload in scan(log)
        if payload[:16] != b"\xff" * 16
    ]


def check(folder: Path, echo: Run) -> tuple[list[Any], Summary]:
    """Go on; every row has its own answer."""
    asked, summary = echo(folder / "in.jsonl", folder / "out.jsonl")
    lines = [orjson.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert lines == [{"prompt": text, "result": f"echo: {text}", "error": None} for text in PROMPTS]
    return asked, summary


@settings(deadline=None, max_examples=80, suppress_health_check=QUIET)
@given(
    name=st.sampled_from(FILES),
    where=st.floats(0, 1),
    change=st.one_of(st.integers(0, 7), st.binary(min_size=1, max_size=60), st.none()),
    output=st.booleans(),
)
def test_any_damage_anywhere(
    tmp_path_factory: pytest.TempPathFactory,
    echo: Run,
    name: str,
    where: float,
    change: int | bytes | None,
    output: bool,
) -> None:
    folder = tmp_path_factory.mktemp("job")
    checkpoint = finished(folder, echo)
    if not output:
        (folder / "out.jsonl").unlink()
    records = prompts_of_records(checkpoint / "results.log")
    path = checkpoint / name
    raw = bytearray(path.read_bytes())
    at = int(where * max(0, len(raw) - 1))
    if change is None:
        del raw[at:]
    elif isinstance(change, bytes):
        raw[at : at + len(change)] = change[: max(0, len(raw) - at)] if name == "results.log" else change
    elif raw:
        raw[at] ^= 1 << change
    good = path.read_bytes()
    path.write_bytes(raw)
    asked, _ = check(folder, echo)
    touched = {text for begin, end, text in records if name == "results.log" and raw[begin:end] != good[begin:end]}
    assert set(asked) <= touched
    assert echo(folder / "in.jsonl", folder / "out.jsonl")[0] == [], "what was mended stays mended"


def test_one_flipped_bit_costs_one_row_and_is_told(tmp_path: Path, echo: Run) -> None:
    checkpoint = finished(tmp_path, echo)
    log = checkpoint / "results.log"
    begin, _, text = prompts_of_records(log)[1]
    raw = bytearray(log.read_bytes())
    raw[begin + HEAD_BYTES + 20] ^= 4
    log.write_bytes(raw)
    asked, summary = check(tmp_path, echo)
    assert asked == [text]
    lost = f"{log} was damaged: 1 of its records cannot be read, and rows without another one are asked again"
    assert summary.notes == (f"{lost}; the damaged file is kept as results.damaged-1.log",)
    assert (checkpoint / "results.damaged-1.log").read_bytes() == raw


def test_an_error_whose_answer_was_lost_is_asked_again(tmp_path: Path, echo: Run) -> None:
    """The error is the newest record that is left of the row; it was not the last word."""
    folder = finished(tmp_path, echo)
    answer = next(payload for _, payload in scan(folder / "results.log") if payload[:8] == bytes(8))
    checkpoint = Checkpoint(folder, ids=None, keep=True)
    checkpoint.write(0, answer[:16], encode_error("no"), failed=True)
    checkpoint.write(0, answer[:16], answer[16:], failed=False)
    checkpoint.write(1, (1).to_bytes(8, "little") + bytes(8), answer[16:], failed=False)
    checkpoint.flush()
    checkpoint.close()
    begin = prompts_of_records(folder / "results.log")[-2][0]
    raw = bytearray((folder / "results.log").read_bytes())
    raw[begin + HEAD_BYTES + 20] ^= 1
    (folder / "results.log").write_bytes(raw)
    assert set(check(tmp_path, echo)[0]) == {PROMPTS[0], PROMPTS[1]}


def test_a_flipped_length_costs_one_row(tmp_path: Path, echo: Run) -> None:
    log = finished(tmp_path, echo) / "results.log"
    begin, _, text = prompts_of_records(log)[0]
    raw = bytearray(log.read_bytes())
    raw[begin + 11] ^= 0x20
    log.write_bytes(raw)
    assert check(tmp_path, echo)[0] == [text]


@pytest.mark.parametrize("left", [None, b"", b'{"job": "remu', b"[]", b"\0" * 600])
def test_a_lost_job_json_is_made_again(tmp_path: Path, echo: Run, left: bytes | None) -> None:
    path = finished(tmp_path, echo) / "job.json"
    good = path.read_bytes()
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    assert check(tmp_path, echo)[0] == []
    assert path.read_bytes() == good


def test_a_changed_letter_in_job_json_is_no_other_job(tmp_path: Path, echo: Run) -> None:
    path = finished(tmp_path, echo) / "job.json"
    raw = path.read_bytes()
    assert b'"prompt"' in raw
    path.write_bytes(raw.replace(b'"prompt"', b'"prompx"'))
    assert check(tmp_path, echo)[0] == []
    assert path.read_bytes() == raw


def test_records_without_any_word_on_their_job_are_nobodys(tmp_path: Path, echo: Run) -> None:
    checkpoint = finished(tmp_path, echo)
    (checkpoint / "job.json").unlink()
    log = checkpoint / "results.log"
    raw = bytearray(log.read_bytes())
    raw[len(b"RMDLOG2\n") + HEAD_BYTES + 30] ^= 1
    log.write_bytes(raw)
    with pytest.raises(Conflict, match="does not say which job it belongs to"):
        echo(tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert log.read_bytes() == raw
    assert len(echo(tmp_path / "in.jsonl", tmp_path / "out.jsonl", resume=False)[0]) == len(PROMPTS)


@pytest.mark.parametrize("name", ["results.log", "job.json"])
def test_what_cannot_be_read_at_all_is_named(tmp_path: Path, echo: Run, name: str) -> None:
    """A directory in the place of a file, which nobody can read or replace."""
    checkpoint = finished(tmp_path, echo)
    (checkpoint / name).unlink()
    (checkpoint / name / "full").mkdir(parents=True)
    with pytest.raises(RemudaError, match=f"{checkpoint}.* cannot be (read|written): Is a directory"):
        echo(tmp_path / "in.jsonl", tmp_path / "out.jsonl")
