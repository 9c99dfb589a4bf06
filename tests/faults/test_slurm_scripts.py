"""Scripts of all kinds, as users write them, on a real cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Home, until
from tests.faults.slurm_runs import Runs

if TYPE_CHECKING:
    from remuda.testing.slurm import SlurmBed

CPU = ("--partitions", "cpu")


@pytest.fixture
def runs(home: Home, slurm: SlurmBed) -> Runs:
    return Runs(home, slurm)


def test_a_typo_stops_after_the_brake(runs: Runs) -> None:
    script = runs.script('#!/bin/sh\necho "$REMUDA_ATTEMPT" >> "$OUT/starts"\npyhton train.py\n')
    runs.begin(*CPU, script=script)
    until(lambda: runs.phase() == "FAILED", "it is given up")
    assert len(runs.lines("starts")) == 3
    told = runs.told()
    assert "pyhton" in told
    assert "exit code 127" in told


def test_a_script_that_reads_its_input_finds_none_and_is_run_whole(runs: Runs) -> None:
    script = runs.script('#!/bin/bash\ncat > "$OUT/read"\nread -r line\necho "after: [$line]" > "$OUT/after"\n')
    runs.begin(*CPU, script=script)
    runs.wait_done()
    assert runs.lines("read") == []
    assert runs.lines("after") == ["after: []"]


def test_a_name_with_spaces_and_quotes(runs: Runs) -> None:
    script = runs.script('#!/bin/sh\nprintf "%s\\n" "$@" > "$OUT/args"\n', name='it\'s "my" $(touch pwned) script.sh')
    env = ("--env", f"OUT={runs.out}")
    hostile = ["a b", "it's", '"quoted"', "$(touch pwned)", "`touch pwned`", "semi;colon", "back\\slash", "*"]
    runs.home.run("run", str(script), "--name", "odd", "--backend", "slurm", *CPU, *env, "--", *hostile)
    runs.wait_done("odd")
    assert runs.lines("args") == hostile
    assert not list(Path(runs.home.root).rglob("pwned"))


def test_the_interpreter_line_is_honoured(runs: Runs) -> None:
    script = runs.script(
        "#!/usr/bin/env -S python3 -u\nimport os, sys\nopen(os.environ['OUT'] + '/who', 'w').write(sys.argv[0])\n"
    )
    script.chmod(0o644)
    runs.begin(*CPU, script=script)
    runs.wait_done()
    assert runs.lines("who")


def test_a_hang_without_progress_is_ended_and_begun_again(runs: Runs) -> None:
    script = runs.script(
        '#!/bin/sh\necho "$REMUDA_ATTEMPT" >> "$OUT/starts"\nremuda-progress 1/10\n'
        '[ "$REMUDA_ATTEMPT" -ge 2 ] || sleep 600\nremuda-progress 10/10\n'
    )
    # Shorter, and a second attempt whose two words come late is a hang, too.
    runs.begin(*CPU, "--progress-stall", "12", script=script)
    runs.wait_done()
    assert runs.lines("starts") == ["1", "2"]
    assert "no progress" in runs.told()


def test_a_gpu_that_falls_off_the_bus_is_avoided_by_all(runs: Runs) -> None:
    script = runs.script(
        '#!/bin/sh\necho "$REMUDA_ATTEMPT $SLURM_JOB_ID $SLURMD_NODENAME" >> "$OUT/starts"\n'
        '[ "$REMUDA_ATTEMPT" -ge 2 ] && exit 0\n'
        'echo "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus." >&2\nexit 1\n'
    )
    runs.begin("--gpus", "1", "--partitions", "gpu-a100", script=script)
    runs.wait_done()
    first, second = (start[2] for start in runs.starts())
    assert first != second
    history = json.loads(runs.home.run("nodes", "history", first, "--json").stdout)
    assert "xid-79" in json.dumps(history)
    # Another run is kept away, too.
    other = runs.script('#!/bin/sh\necho "$SLURMD_NODENAME" > "$OUT/other"\n', name="other.sh")
    runs.begin("--gpus", "1", "--partitions", "gpu-a100", script=other, name="other")
    runs.wait_done("other")
    assert runs.lines("other") == [second]


def test_the_output_is_where_the_user_wanted_it_too(runs: Runs) -> None:
    text = "#!/bin/sh\n#SBATCH --output=logs/%x-%j.out\n#SBATCH --mem=50M\necho hello from $SLURM_JOB_ID\n"
    (runs.home.root / "logs").mkdir()
    runs.begin(*CPU, script=runs.script(text))
    runs.wait_done()
    [log] = until(lambda: list((runs.home.root / "logs").iterdir()), "its file is there")
    until(lambda: "hello from" in log.read_text(), "its line is there")
    assert "hello from" in runs.home.run("logs", "train").stdout
