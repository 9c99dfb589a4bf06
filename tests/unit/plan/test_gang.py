"""Gangs as workloads: who runs what, and who gets which GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.backends.base import Request, TaskKey, make_token
from remuda.backends.local.render import LocalSite, render
from remuda.base.errors import Conflict, InputError
from remuda.look.allocate import devices_by_task, with_devices
from remuda.plan.compile import Draft, Plan, accept
from remuda.plan.context import Context
from remuda.plan.gang import compile_gang, gang_name, plan_gang
from remuda.plan.model import FILES_MARK, INDEX_MARK, Kind, Role, Workload
from remuda.specs.gang import GangSpec
from remuda.specs.reading.load import build
from remuda.specs.reading.resolve import Override

if TYPE_CHECKING:
    from remuda.plan.compile import PlanFacts
    from remuda.specs.reading.load import Loaded

CONTEXT = Context(cwd="/here", state="/h")
SITE = LocalSite(Path("/h/workloads"), Path("/h/node.pyz"), "python3", Path("/h/host.json"), Path("/ports"))

APART: dict[str, Any] = {"backend": "kubernetes", "image": "r/t:1", "rendezvous": "s3://b/x"}


def plan(name: str = "g", gpus: tuple[str, ...] = (), copy: str = "", now: float = 1000.0, **fields: Any) -> Workload:
    spec = GangSpec(**{"ranks": 2, "command": ("python", "train.py"), **fields})
    context = Context(cwd="/here", state="/h", env={"PATH": "/bin"}, gpus=gpus)
    return accept(plan_gang(spec, context, name=name, copy=copy), "u1", now)


def child(workload: Workload, rank: int, attempt: int = 1) -> dict[str, Any]:
    """What the node program of a rank reads."""
    key = TaskKey(workload.name, "rank", rank)
    token = make_token(key, attempt, workload.uid)
    rendered = render(Request(key, attempt, token, workload, workload.groups[0]), SITE)
    (text,) = rendered.files.values()
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        pytest.param({"name": "mine"}, "mine", id="as said"),
        pytest.param({"script": "a/Train It.py", "command": ()}, "train-it", id="script"),
        pytest.param({"command": ("python", "-u", "x/fit.py", "--lr", "1")}, "fit", id="script in a command"),
        pytest.param({"command": ("./trainer", "--x")}, "trainer", id="program"),
        pytest.param({"command": ("bash", "-c", "echo $X")}, "bash", id="no script"),
    ],
)
def test_names(fields: dict[str, Any], name: str) -> None:
    assert gang_name(GangSpec(**{"ranks": 1, "command": ("x",), **fields})) == name


def test_one_group_of_ranks() -> None:
    workload = plan(ranks=3, args=("--lr", "0.1"), quorum=2, timeout=60.0, max_retries=4)
    (group,) = workload.groups
    assert (workload.kind, workload.labels) == (Kind.GANG, {"rendezvous": "file:///h/workloads/g/rendezvous",
                                                            "run_id": "g"})  # fmt: skip
    assert (group.name, group.role, group.count, group.quorum) == ("rank", Role.RANK, 3, 2)
    assert (group.replace.policy, group.replace.max_failures, group.replace.until) == ("on-failure", 5, 1060.0)
    assert group.restart.policy == "never", "a rank is begun again by the supervisor, so that its GPUs are looked at"
    assert group.command.argv == ("python", "train.py", "--lr", "0.1")


@pytest.mark.parametrize(
    ("fields", "assemble_s"),
    [
        pytest.param({"backend": "slurm"}, 600.0, id="by default"),
        pytest.param({"backend": "slurm", "assemble": "5m"}, 300.0, id="as said"),
        pytest.param({"backend": "slurm", "assemble": 0}, 0.0, id="never"),
        pytest.param({"backend": "slurm", "mode": "rigid"}, 0.0, id="rigid"),
        pytest.param({**APART, "assemble": "5m"}, 300.0, id="Kubernetes"),
        pytest.param({"assemble": "5m"}, 0.0, id="here all have their GPUs at once"),
    ],
)
def test_how_long_ranks_wait_for_others(fields: dict[str, Any], assemble_s: float) -> None:
    workload = plan(**fields)
    assert (workload.groups[0].assemble_s, workload.pack) == (assemble_s, None)


@pytest.mark.parametrize(("workdir", "cwd"), [(None, "/here"), ("a/b", "/here/a/b"), ("/there", "/there")])
def test_where_ranks_start(workdir: str | None, cwd: str) -> None:
    assert child(plan(workdir=workdir), 1)["cwd"] == cwd


def test_a_script_is_run_from_its_copy() -> None:
    workload = plan(script="train.py", command=(), args=("x",), copy="/h/workloads/g/scripts/u1/train.py")
    assert child(workload, 0)["argv"] == ["/h/workloads/g/scripts/u1/train.py", "x"]


def test_what_a_rank_is_told() -> None:
    workload = plan(ranks=3, env={"A": "1"}, secret_env={"K": {"file": "/k"}}, run_id="r7", rendezvous="s3://b/x")
    told = child(workload, 2)
    assert told["env"] == {
        "PATH": "/bin", "A": "1", "REPLICA_RANK": "2", "REPLICA_COUNT": "3", "RANK": "2", "WORLD_SIZE": "3",
        "RUN_ID": "r7", "REMUDA_RENDEZVOUS": "s3://b/x",
    }  # fmt: skip
    said = child(plan(ranks=3, env={"WORLD_SIZE": "1"}), 2)["env"]
    assert (said["WORLD_SIZE"], said["REPLICA_COUNT"]) == ("1", "3"), "a rank of several processes counts those"
    assert told["secret_env"] == {"K": {"file": "/k"}}
    assert told["cwd"] == "/here"


def test_where_the_ranks_of_a_rigid_gang_meet() -> None:
    workload = plan(ranks=3, mode="rigid")
    (group,) = workload.groups
    assert (group.together, group.quorum) == (True, 0)
    told = [[child(workload, rank, attempt)["env"] for rank in range(3)] for attempt in (1, 2)]
    assert [env["LOCAL_RANK"] for env in told[0]] == [env["RANK"] for env in told[0]] == ["0", "1", "2"]
    assert {env["MASTER_ADDR"] for env in told[0]} == {"127.0.0.1"}
    first, second = ({env["MASTER_PORT"] for env in envs} for envs in told)
    assert len(first) == len(second) == 1
    assert first != second
    assert all(10000 <= int(port) < 20000 for port in first | second)


def test_a_rank_that_sees_its_own_gpus_only_counts_them_from_0() -> None:
    workload = with_devices(
        plan(mode="rigid", resources={"gpus": 1}, gpus=("0", "1"), env={"MASTER_PORT": "29500"}), {}
    )
    told = [child(workload, rank)["env"] for rank in range(2)]
    assert [(env["CUDA_VISIBLE_DEVICES"], env["LOCAL_RANK"]) for env in told] == [("0", "0"), ("1", "0")]
    assert {env["MASTER_PORT"] for env in told} == {"29500"}, "the document may say otherwise"


def compiled(text: str = "", **fields: Any) -> Plan:
    """A gang on Kubernetes, of what a document says; `text` is its script."""
    said = [Override(key, value, f"--{key}") for key, value in {"kind": "gang", "ranks": 2, **APART, **fields}.items()]
    loaded = cast("Loaded[GangSpec]", build(None, [one for one in said if one.value is not None]))
    facts = cast("PlanFacts", None)
    return compile_gang(Draft(loaded, "g", "/here/a train.py" if text else "", text), CONTEXT, facts)


def test_a_command_runs_in_the_image_as_it_is() -> None:
    planned = compiled(command=["python", "train.py"], namespace="ml", kubeconfig="k", env={"A": "1"})
    workload = planned.workload
    (group,) = workload.groups
    assert workload.place == {"kubeconfig": "/here/k", "namespace": "ml"}
    assert (group.command.argv, group.command.image, group.command.cwd) == (("python", "train.py"), "r/t:1", "")
    assert (group.command.files, workload.files, planned.notes) == ({}, {}, ())
    assert group.command.env == {
        "A": "1", "RANK": INDEX_MARK, "WORLD_SIZE": "2", "REPLICA_RANK": INDEX_MARK, "REPLICA_COUNT": "2",
        "RUN_ID": "g", "REMUDA_RENDEZVOUS": "s3://b/x",
    }  # fmt: skip


def test_a_script_travels_into_the_image() -> None:
    planned = compiled("#!/bin/sh\n", script="a train.py", args=["x"], workdir="/data", partitions=["p"], mem="1GB")
    (group,) = planned.workload.groups
    assert group.command.argv == (f"{FILES_MARK}/a_train.py", "x")
    assert (group.command.files, group.command.cwd) == ({"a_train.py": "#!/bin/sh\n"}, "/data")
    assert [*planned.workload.files.values()] == ["#!/bin/sh\n"]
    assert planned.notes == (
        "ranks look for the credentials of s3://b/x in the pod and its service account; others go by secret_env",
        "--partitions: not used on Kubernetes",
    )


@pytest.mark.parametrize(
    ("fields", "message", "hint"),
    [
        pytest.param(
            {"image": None}, "a gang on Kubernetes needs an image",
            "--image registry/name:tag, with Python 3.9 or newer in it", id="image",
        ),
        pytest.param(
            {"profile": "10Hz"}, "recordings of GPUs do not come back from pods yet", "leave it out", id="recordings"
        ),
        pytest.param(
            {"backend": "local"}, "`image` is for gangs on Kubernetes, and this one is on local",
            "add --backend kubernetes, or leave it out", id="image elsewhere",
        ),
    ],
)  # fmt: skip
def test_what_is_refused_of_images(fields: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        compiled(command=["true"], **fields)
    assert (caught.value.message.partition(": ")[2], caught.value.hint) == (message, hint)


@given(ranks=st.integers(1, 40), attempt=st.integers(1, 5))
def test_every_rank_is_another(ranks: int, attempt: int) -> None:
    told = [child(plan(ranks=ranks), rank, attempt) for rank in range(ranks)]
    assert [item["env"]["REPLICA_RANK"] for item in told] == [str(rank) for rank in range(ranks)]
    assert {item["env"]["REPLICA_COUNT"] for item in told} == {str(ranks)}
    assert len({item["run_dir"] for item in told}) == len({item["token"] for item in told}) == ranks


gangs = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.booleans()), max_size=8)


@given(present=st.integers(0, 10), asked=gangs)
def test_no_gpu_is_given_twice_and_a_refused_gang_has_none(present: int, asked: list[tuple[int, int, bool]]) -> None:
    machine = tuple(str(device) for device in range(present))
    taken: dict[str, str] = {}
    for number, (ranks, gpus, ends) in enumerate(asked):
        name = f"g{number}"
        free = [device for device in machine if device not in taken]
        workload = plan(name, machine, ranks=ranks, resources={"gpus": gpus})
        if ranks * gpus > len(free):
            with pytest.raises(Conflict) as caught:
                with_devices(workload, taken)
            sentence = f"{ranks * gpus} GPUs are needed and {len(free)} of this machine's {present} are free"
            holders = ", ".join(sorted(set(taken.values())))
            assert caught.value.message == sentence
            assert caught.value.hint == (f"in use by: {holders}" if holders else "to run without GPUs: --gpus 0")
            continue
        placed = with_devices(workload, taken)
        given_out = [device for devices in devices_by_task(placed).values() for device in devices]
        assert len(given_out) == len(set(given_out)) == ranks * gpus
        assert not set(given_out) & taken.keys()
        for rank in range(ranks if gpus else 0):
            assert child(placed, rank)["env"]["CUDA_VISIBLE_DEVICES"].count(",") == gpus - 1
        if not ends:
            taken |= dict.fromkeys(given_out, name)
