"""The Slurm test bed on real daemons: each drill does what it says, and everything can be undone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until

from remuda.base.errors import InputError, NotFound, RemudaError
from remuda.testing.slurm import SlurmBed, Topology, cpu_farm, procs, registry, sweep
from remuda.testing.slurm.topology import NodeShape, Partition
from remuda.wire.process import start_time

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_S = 120
FOREVER = "while :; do sleep 0.2; done"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a test makes a bed of its own; what is left of it ends with the test."""
    path = Path(tempfile.mkdtemp(prefix="rmsl", dir="/tmp"))
    yield path
    SlurmBed(path).down()


def two_nodes() -> Topology:
    return Topology((NodeShape("n1", "a100", 1), NodeShape("n2")), (Partition("all", ("n1", "n2"), "Default=YES"),))


def running(bed: SlurmBed, *options: str, script: str = FOREVER) -> int:
    """A job whose script has begun, which is a while after the controller calls it running."""
    job = bed.submit(f"echo begun\n{script}", *options)
    bed.wait_job(job, "RUNNING", limit_s=LIMIT_S)
    until(lambda: "begun" in bed.output(job), f"the script of job {job} has begun")
    return job


def test_a_job_sees_its_gpus_and_the_head(slurm_bare: SlurmBed) -> None:
    host = os.uname().nodename.split(".")[0]
    job = slurm_bare.submit(f"echo $CUDA_VISIBLE_DEVICES $SLURMD_NODENAME; getent hosts {host}", "--gres=gpu:2")
    slurm_bare.wait_job(job, "COMPLETED", limit_s=LIMIT_S)
    first, head = slurm_bare.output(job).splitlines()
    assert (first, head.split()[0]) == ("0,1 a100-1", slurm_bare.layout.head)


def test_a_crash_ends_jobs_with_node_fail(slurm_bare: SlurmBed) -> None:
    job = running(slurm_bare, "--no-requeue", "--nodelist=a100-2")
    before = slurm_bare.processes("a100-2")
    assert before
    slurm_bare.crash("a100-2")
    assert slurm_bare.processes("a100-2") == []
    assert not any(map(start_time, before))
    assert slurm_bare.wait_job(job, "NODE_FAIL", limit_s=LIMIT_S) == "NODE_FAIL"
    assert slurm_bare.wait_node("a100-2", "down", limit_s=LIMIT_S) in ("down", "down*")
    slurm_bare.start("a100-2")
    assert slurm_bare.wait_node("a100-2", "idle", limit_s=LIMIT_S) == "idle"


def test_a_job_that_may_be_requeued_starts_again_elsewhere(slurm_bare: SlurmBed) -> None:
    job = running(slurm_bare, "--requeue", "--gres=gpu:a100:4", script=f"echo on $SLURMD_NODENAME; {FOREVER}")
    slurm_bare.crash("a100-1")
    until(lambda: "on a100-2" in slurm_bare.output(job), "it runs on the other node")


def test_a_frozen_node_goes_down_and_a_thawed_one_comes_back(slurm_bare: SlurmBed) -> None:
    running(slurm_bare, "--no-requeue", "-p", "gpu-l40s", "--nodelist=l40s-1")
    slurm_bare.freeze("l40s-1")
    until(lambda: {procs.state(pid) for pid in slurm_bare.processes("l40s-1")} == {"T"}, "all of it stands still")
    assert slurm_bare.wait_node("l40s-1", "down", limit_s=LIMIT_S) == "down*"
    slurm_bare.thaw("l40s-1")
    assert slurm_bare.wait_node("l40s-1", "idle", limit_s=LIMIT_S) == "idle"


def test_a_cut_leaves_the_job_running_unseen(slurm_bare: SlurmBed) -> None:
    job = running(
        slurm_bare, "--no-requeue", "--nodelist=cpu-1", "-p", "cpu", script="while :; do date +%s%N; sleep 0.1; done"
    )
    if not slurm_bare.layout.isolated:  # without cables, and so it says
        with pytest.raises(InputError, match=r"^cut is not possible here"):
            slurm_bare.cut("cpu-1")
        return
    slurm_bare.cut("cpu-1")
    slurm_bare.wait_job(job, "NODE_FAIL", limit_s=LIMIT_S)
    size = len(slurm_bare.output(job))
    until(lambda: len(slurm_bare.output(job)) > size, "the job that nobody sees writes on")
    slurm_bare.heal("cpu-1")
    slurm_bare.wait_node("cpu-1", "idle", limit_s=LIMIT_S)


def test_stopping_slurmd_leaves_its_jobs_alone(slurm_bare: SlurmBed) -> None:
    job = running(
        slurm_bare, "--nodelist=cpu-2", "-p", "cpu", script="while [ ! -e done ]; do sleep 0.1; done; rm done"
    )
    slurm_bare.stop("cpu-2")
    assert slurm_bare.processes("cpu-2")
    slurm_bare.start("cpu-2")
    where = Path(re.search(r"WorkDir=(\S+)", slurm_bare.run("scontrol", "show", "job", str(job)).stdout)[1])  # type: ignore[index]
    (where / "done").touch()
    slurm_bare.wait_job(job, "COMPLETED", limit_s=LIMIT_S)


@pytest.mark.parametrize(("partition", "ending"), [("spot", "PENDING"), ("spotc", "PREEMPTED")])
def test_spot_gives_way_after_its_grace(slurm_bare: SlurmBed, partition: str, ending: str) -> None:
    script = "trap 'date +%s.%N; echo asked' TERM; while :; do date +%s.%N; sleep 0.1; done"
    job = running(slurm_bare, "-p", partition, "--nodelist=l40s-1", "--gres=gpu:2", script=script)
    until(lambda: slurm_bare.output(job).count("\n") > 1, "it has set its trap")
    slurm_bare.submit(FOREVER, "-p", "gpu-l40s", "--nodelist=l40s-1", "--gres=gpu:2")
    assert slurm_bare.wait_job(job, ending, limit_s=LIMIT_S) == ending
    until(lambda: "asked" in slurm_bare.output(job), "it was asked")


def test_a_time_limit_ends_a_job(slurm_bare: SlurmBed) -> None:
    job = running(slurm_bare, "-p", "short")
    slurm_bare.expire(job)
    slurm_bare.wait_job(job, "TIMEOUT", limit_s=240)


def test_a_drained_node_takes_no_jobs(slurm_bare: SlurmBed) -> None:
    slurm_bare.drain("cpu-1")
    slurm_bare.drain("cpu-2")
    job = slurm_bare.submit("true", "-p", "cpu")
    assert slurm_bare.wait_node("cpu-1", "drain", limit_s=LIMIT_S) == "drain"
    slurm_bare.resume("cpu-2")
    slurm_bare.wait_job(job, "COMPLETED", limit_s=LIMIT_S)


def test_partitions_that_refuse_and_that_wait(slurm_bare: SlurmBed) -> None:
    with pytest.raises(RemudaError, match="Required partition not available"):
        slurm_bare.submit("true", "-p", "drained")
    waiting = slurm_bare.submit("true", "-p", "down")
    until(lambda: "PartitionDown" in slurm_bare.run("squeue", "-h", "-j", str(waiting), "-o", "%r").stdout, "it waits")


def test_jobs_run_on_while_the_controller_is_dead(slurm_bare: SlurmBed, tmp_path: Path) -> None:
    job = running(slurm_bare, script=f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo end")
    until(lambda: list((slurm_bare.root / "state").glob("job_state")), "the job is in the state")
    slurm_bare.stop("slurmctld")
    assert slurm_bare.job_state(job) == ""
    (tmp_path / "go").touch()
    until(lambda: "end" in slurm_bare.output(job), "it ends unseen")
    slurm_bare.start("slurmctld")
    slurm_bare.wait_job(job, "COMPLETED", limit_s=LIMIT_S)


def test_a_frozen_controller_is_silent(slurm_bare: SlurmBed) -> None:
    slurm_bare.freeze("slurmctld")
    assert slurm_bare.run("squeue", check=False).returncode == 1
    slurm_bare.thaw("slurmctld")
    assert slurm_bare.run("squeue").returncode == 0


def test_lost_state_forgets_jobs_and_reuses_ids(slurm_bare: SlurmBed) -> None:
    slurm_bare.save_state()
    job = running(slurm_bare, "--job-name=before")
    slurm_bare.lose_state()
    assert slurm_bare.job_state(job) == ""
    assert slurm_bare.submit(FOREVER, "--job-name=after") == job


def test_accounting_knows_what_ended(slurm: SlurmBed) -> None:
    job = slurm.submit("exit 3", "--qos=high", "--account=research", "--comment=why")
    slurm.wait_job(job, "FAILED", limit_s=LIMIT_S)
    ask = ["sacct", "-n", "-X", "-P", "-j", str(job), "-o", "state,exitcode,qos,account,comment"]
    until(lambda: slurm.run(*ask).stdout.strip() == "FAILED|3:0|high|research|why", "sacct knows it")


def test_a_limit_of_a_qos_refuses(slurm: SlurmBed) -> None:
    for _ in range(4):
        slurm.submit(FOREVER, "--qos=limited", "--hold")
    with pytest.raises(RemudaError, match="QOSMaxSubmitJobPerUserLimit"):
        slurm.submit(FOREVER, "--qos=limited")


def test_restore_undoes_everything(slurm: SlurmBed) -> None:
    running(slurm, "--nodelist=a100-1")
    slurm.freeze("a100-1")
    slurm.crash("a100-2")
    slurm.stop("l40s-1")
    slurm.drain("cpu-1")
    slurm.run("scontrol", "update", "partitionname=cpu", "state=down")
    slurm.freeze("slurmdbd")
    slurm.crash("slurmctld")
    slurm.restore()
    assert set(slurm.node_states().values()) == {"idle"}
    assert slurm.run("squeue", "-h").stdout == ""
    assert "cpu up" in slurm.run("sinfo", "-h", "-o", "%R %a").stdout


def test_what_cannot_be_is_said(slurm_bare: SlurmBed, folder: Path) -> None:
    with pytest.raises(InputError, match=r"^there is no node or service 'a100-9'$"):
        slurm_bare.crash("a100-9")
    with pytest.raises(InputError, match=r"^drain is for nodes, and slurmctld is not a node$"):
        slurm_bare.drain("slurmctld")
    with pytest.raises(NotFound, match=rf"^there is no Slurm test bed in {folder}$"):
        SlurmBed.open(folder)
    with pytest.raises(InputError, match=r"the path of a bed has at most 70 characters$"):
        SlurmBed(folder / ("x" * 60), accounting=False).up()


def test_nodes_without_networks_of_their_own(folder: Path) -> None:
    bed = SlurmBed(folder, topology=two_nodes(), accounting=False, isolated=False, extra=["MaxArraySize=7"], owned=True)
    bed.up()
    assert "MaxArraySize            = 7" in bed.run("scontrol", "show", "config").stdout
    with pytest.raises(InputError, match=r"^cut is not possible here: nodes of this bed share the network"):
        bed.cut("n1")
    job = running(bed, "--no-requeue", "--nodelist=n1", script=f"setsid sleep 612 & {FOREVER}")
    other = running(bed, "--nodelist=n2")
    until(lambda: any(procs.program(pid) == "sleep" for pid in bed.processes("n1")), "the job has children")
    left = bed.processes("n1")
    bed.crash("n1")
    assert not any(map(start_time, left))
    bed.wait_job(job, "NODE_FAIL", limit_s=LIMIT_S)
    assert bed.job_state(other) == "RUNNING"
    bed.restore()


def test_many_nodes(folder: Path) -> None:
    bed = SlurmBed(folder, topology=cpu_farm(12, cpus=64), accounting=False, owned=True)
    bed.up()
    job = bed.submit("srun -l hostname", "-N", "12", "--ntasks-per-node=1", "--cpus-per-task=64")
    bed.wait_job(job, "COMPLETED", "FAILED", limit_s=LIMIT_S)
    assert len(bed.output(job).splitlines()) == 12


def test_qualities_of_service_may_decide_who_gives_way(folder: Path) -> None:
    bed = SlurmBed(folder, preempt="qos", owned=True)
    bed.up()
    low = running(bed, "-p", "gpu-l40s", "--nodelist=l40s-1", "--gres=gpu:2")
    bed.submit(FOREVER, "-p", "gpu-l40s", "--nodelist=l40s-1", "--gres=gpu:2", "--qos=high")
    bed.wait_job(low, "PENDING", limit_s=LIMIT_S)


START = """
import sys
from remuda.testing.slurm import SlurmBed, Topology, NodeShape, Partition
shape = Topology((NodeShape("n1"),), (Partition("all", ("n1",), "Default=YES"),))
bed = SlurmBed(sys.argv[1], topology=shape, accounting=False, owned=True)
bed.up()
print(bed.layout.slot, bed.layout.isolated, flush=True)
sys.stdin.read()
"""


def start_elsewhere(folder: Path) -> tuple[subprocess.Popen[str], int]:
    owner = subprocess.Popen(
        [sys.executable, "-c", START, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout
    return owner, int(owner.stdout.readline().split()[0])


def end(owner: subprocess.Popen[str]) -> None:
    owner.kill()
    owner.communicate()


@pytest.mark.parametrize("is_removed", [False, True], ids=["directory left", "directory removed"])
def test_a_bed_whose_owner_was_killed_is_swept(folder: Path, is_removed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, slot = start_elsewhere(folder)
    bed = SlurmBed.open(folder)
    left = [bed.daemons.pid("slurmctld") or 0, *bed.processes("n1")]
    assert folder not in sweep()
    lock = registry.locked
    with lock(registry.registry() / "sweep.lock"):  # other beds that start now would sweep it before us
        monkeypatch.setattr(registry, "locked", lambda path: nullcontext() if path.name == "sweep.lock" else lock(path))
        end(owner)
        if is_removed:
            shutil.rmtree(folder, ignore_errors=True)
        assert folder in sweep()
    assert not any(map(start_time, left))
    assert not folder.exists()
    assert not Path(f"/sys/class/net/rmsl{slot}").exists()
    assert registry.taken().get(slot) != folder


def test_beds_at_once_do_not_meet(folder: Path) -> None:
    owners = [start_elsewhere(folder / name) for name in ("a", "b")]
    try:
        assert owners[0][1] != owners[1][1]
        for name in ("a", "b"):
            bed = SlurmBed.open(folder / name)
            bed.wait_job(bed.submit("true"), "COMPLETED", limit_s=LIMIT_S)
    finally:
        for owner, _ in owners:
            end(owner)
        sweep()
    until(lambda: list(folder.iterdir()) == [], "nothing is left, whoever swept it")


def test_a_bed_comes_back_after_all_of_it_was_killed(folder: Path) -> None:
    bed = SlurmBed(folder, topology=two_nodes(), owned=True)
    bed.up()
    job = bed.submit("true")
    bed.wait_job(job, "COMPLETED", limit_s=LIMIT_S)
    for name in (*bed.services, *bed.nodes):
        bed.crash(name)
    bed.up()
    # What the controller had saved may be of a moment when the job was not quite over.
    until(lambda: bed.node_states() == {"n1": "idle", "n2": "idle"}, "both nodes are idle")
    ask = ["sacct", "-n", "-X", "-P", "-j", str(job), "-o", "state"]
    until(lambda: bed.run(*ask, check=False).stdout.strip() == "COMPLETED", "the database still knows the job")
    bed.down(wipe=False)
    bed.up()
    until(lambda: bed.node_states() == {"n1": "idle", "n2": "idle"}, "both nodes are idle")
    assert bed.submit("true") > job
