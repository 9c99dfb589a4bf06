"""The cluster file that is written: each value with where it came from, and nothing guessed."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from remuda.backends.base import Cluster, Node, PoolInfo
from remuda.backends.slurm.client import SlurmClient
from remuda.backends.slurm.commands import CommandOutput, Commands
from remuda.base.errors import BackendUnreachable, InputError, Unwritable
from remuda.cli import main
from remuda.look import cluster_file
from remuda.look.cluster_file import Known
from remuda.specs.recipe import cluster
from remuda.specs.recipe.draft import DraftLine, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NODES = """\
NodeName=g1 CPUTot=8 CPUAlloc=0 Gres=gpu:h100:8(S:0-1) GresUsed=gpu:h100:0 RealMemory=1000 State=IDLE Partitions=gpu,all
NodeName=g2 CPUTot=8 CPUAlloc=0 Gres=gpu:h100:8 GresUsed=gpu:h100:8 RealMemory=1000 State=ALLOCATED Partitions=gpu,all
NodeName=c1 CPUTot=8 CPUAlloc=0 Gres=(null) RealMemory=1000 State=IDLE Partitions=cpu,all
"""
PARTITIONS = """\
PartitionName=cpu Default=NO MaxTime=UNLIMITED State=UP PriorityTier=1
PartitionName=gpu Default=YES MaxTime=2-00:00:00 State=UP PriorityTier=1
"""


class Recorded(Commands):
    """Slurm's answers, by the words that are asked."""

    def __init__(self, **said: str) -> None:
        super().__init__()
        self.said = {"node": NODES, "partition": PARTITIONS, "config": "MaxArraySize = 1001\n", **said}

    async def run(self, argv: Sequence[str]) -> CommandOutput:
        """What was recorded; who is not there says so."""
        found = self.said.get(argv[2] if argv[0] == "scontrol" else argv[3])
        if found is None:
            raise BackendUnreachable(f"{argv[0]} is not on this machine, or not in PATH")
        return CommandOutput(0, found, "")


def gathered(tmp_path: Path, said: Mapping[str, str] | None = None, **answers: str) -> Known:
    return cluster_file.gathered(said or {}, SlurmClient(Recorded(**answers)), tmp_path)


def test_a_file_of_a_cluster(tmp_path: Path) -> None:
    for name, state in (("ib0", "up"), ("ib1", "down"), ("eth0", "up"), ("lo", "unknown")):
        (tmp_path / "net" / name).mkdir(parents=True)
        (tmp_path / "net" / name / "operstate").write_text(f"{state}\n")
    found = gathered(tmp_path / "net", assoc="ml\nphysics\nml\n", user="ml\n")
    file = tmp_path / "srtslurm.yaml"
    cluster_file.write(file, cluster_file.lines(found, {}))
    assert (
        file.read_text()
        == """\
# What every recipe for this cluster would say again. A recipe wins over it.
default_account: "ml"           # sacctmgr: your default account
default_partition: "gpu"        # scontrol: gpu is the default
gpus_per_node: 8                # scontrol: on 2 nodes of gpu
default_gpu_type: "h100"        # scontrol: on 2 nodes of gpu
network_interface: "ib0"        # this machine has ib0
default_time_limit: "04:00:00"  # scontrol: gpu allows 2-00:00:00

# Short names for recipes: `model: {path: r1, container: sglang}`.
# model_paths:
#   r1: /models/DeepSeek-R1
# containers:
#   sglang: /images/sglang.sqsh
"""
    )
    assert cluster.read(file).layer.data == {
        "backend": {"account": "ml", "partition": "gpu", "network_interface": "ib0", "time_limit": "04:00:00"},
        "gpus_per_node": "8",
        "gpu_type": "h100",
    }


NODE_A, NODE_B = (
    Node("a", "idle", True, ("gpu", "big"), gpus=4, gpu_type="a100"),
    Node("b", "idle", True, ("big",), gpus=8),
)
GPU, BIG, CPU = PoolInfo("gpu", max_time_s=3600), PoolInfo("big"), PoolInfo("cpu", is_default=True)
SLURM = Cluster((NODE_A, NODE_B), (GPU, BIG, CPU))


@pytest.mark.parametrize(
    ("found", "said", "expected"),
    [
        pytest.param(Known(SLURM, ("x", "y")), {}, DraftLine(
            "default_account", None, "sacctmgr: you have x, y, and none is the default", is_open=True,
        ), id="several accounts"),
        pytest.param(Known(SLURM, ("x",)), {}, DraftLine("default_account", "x", "sacctmgr: your only account"),
                     id="one account"),
        pytest.param(Known(SLURM), {}, DraftLine("default_account", None, "sacctmgr names none", is_open=True),
                     id="no account"),
        pytest.param(Known(SLURM), {"default_account": ""}, DraftLine("default_account", None, "to be filled in"),
                     id="left out"),
        pytest.param(Known(SLURM), {}, DraftLine(
            "default_partition", "big", "scontrol: it has most GPUs of big, gpu", is_open=True,
        ), id="several partitions with GPUs"),
        pytest.param(Known(Cluster((NODE_A,), (GPU, CPU))), {}, DraftLine(
            "default_partition", "gpu", "scontrol: only gpu has GPUs",
        ), id="one partition with GPUs"),
        pytest.param(Known(Cluster((), (CPU,))), {}, DraftLine(
            "default_partition", "cpu", "scontrol: cpu is the default; none has GPUs",
        ), id="no GPU at all"),
        pytest.param(Known(Cluster((), (CPU,))), {}, DraftLine("gpus_per_node", 0, "scontrol: no node of cpu has GPUs"),
                     id="none on a node"),
        pytest.param(Known(SLURM), {}, DraftLine(
            "gpus_per_node", 4, "scontrol: on 1 node of big, 8 on 1 other",
        ), id="nodes that differ"),
        pytest.param(Known(SLURM), {"gpus_per_node": "2"}, DraftLine("gpus_per_node", 2, "you said so"), id="said"),
        pytest.param(Known(SLURM), {"default_partition": "gpu"}, DraftLine(
            "default_time_limit", "01:00:00", "scontrol: gpu allows 01:00:00",
        ), id="a short limit"),
        pytest.param(Known(), {}, DraftLine("default_time_limit", "04:00:00", "remuda's own"), id="no Slurm"),
        pytest.param(Known(), {}, DraftLine("default_gpu_type", None, "Slurm gave no answer", is_open=True), id="none"),
        pytest.param(Known(), {}, DraftLine("network_interface", None, "this machine has no ib* or hsn*", is_open=True),
                     id="no fast network"),
    ],
)  # fmt: skip
def test_one_value(found: Known, said: dict[str, str], expected: DraftLine) -> None:
    assert expected in cluster_file.lines(found, said)


def test_what_is_said_must_be_there() -> None:
    with pytest.raises(InputError, match=r"--partition: there is no partition 'bib'") as error:
        cluster_file.lines(Known(SLURM), {"default_partition": "bib"})
    assert error.value.hint == "did you mean 'big'?"
    with pytest.raises(InputError, match="'soon' is not a time as Slurm writes it"):
        cluster_file.lines(Known(SLURM), {"default_time_limit": "soon"})


def test_without_slurm_it_takes_a_word_of_the_user(tmp_path: Path) -> None:
    silent = SlurmClient(Commands(environ={"PATH": str(tmp_path)}))
    with pytest.raises(BackendUnreachable, match="scontrol is not on this machine") as error:
        cluster_file.gathered({}, silent, tmp_path)
    assert "or say what you know: --partition gpu" in error.value.hint
    assert cluster_file.gathered({"default_partition": "gpu"}, silent, tmp_path) == Known()


def test_nothing_of_a_cluster_writes_out_of_its_line() -> None:
    text = render([DraftLine("default_account", "a\nevil: 1", "sacctmgr:\nevil: 2")])
    assert "\nevil" not in text


def test_a_file_that_is_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = ["init", "cluster", "--partition", "gpu", "--gpus-per-node", "8", "--yes"]
    assert main(words) == 0
    assert "not known: default_account, default_gpu_type" in capsys.readouterr().err
    before = (tmp_path / "srtslurm.yaml").read_text()
    assert main([*words, "--account", "a"]) == 4
    assert f"error: {tmp_path}/srtslurm.yaml exists\n  --force overwrites it" in capsys.readouterr().err
    assert (tmp_path / "srtslurm.yaml").read_text() == before
    assert main([*words, "--account", "a", "--force"]) == 0
    assert cluster.read(tmp_path / "srtslurm.yaml").layer.data["backend"]["account"] == "a"
    assert main(["init", "cluster", "-o", str(tmp_path / "new" / "c.yaml"), "--partition", "gpu"]) == 0
    assert cluster.read(tmp_path / "new" / "c.yaml").layer.data["backend"]["partition"] == "gpu"


class Terminal(io.StringIO):
    """A person's answers."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_what_is_open_is_asked_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster_file, "gathered", lambda _: Known(SLURM, ("x", "y")))
    monkeypatch.setattr("sys.stdin", Terminal("y\ngpu\n\n"))
    assert main(["init", "cluster"]) == 0
    found = cluster.read(tmp_path / "srtslurm.yaml").layer.data
    assert (found["backend"], found["gpus_per_node"]) == (
        {"account": "y", "partition": "gpu", "time_limit": "01:00:00"}, "4",
    )  # fmt: skip
    monkeypatch.setattr("sys.stdin", Terminal(""))
    assert main(["init", "cluster", "--yes", "--force"]) == 0
    assert cluster.read(tmp_path / "srtslurm.yaml").layer.data["backend"]["partition"] == "big"


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "full").touch()
    with pytest.raises(Unwritable, match=r"full/c.yaml cannot be written"):
        cluster_file.write(tmp_path / "full" / "c.yaml", [])
