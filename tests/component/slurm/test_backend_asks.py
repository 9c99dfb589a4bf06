"""What Slurm is asked for: arrays, pools, what it refuses, what can never start, what arrives on the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.backends.base import Handle, Life
from remuda.backends.slurm.arrays import array_name
from remuda.base.errors import Rejected
from remuda.plan.model import Pool, Resources

if TYPE_CHECKING:
    from tests.component.slurm.conftest import Bench


async def test_eight_tasks_of_a_group_are_one_call(either: Bench) -> None:
    requests = [either.request("sh", "-c", "echo $REMUDA_TASK $1; sleep 3600", "x", count=8, index=index)
                for index in range(8)]  # fmt: skip
    handles = await either.submit(*requests)
    assert either.backend.client.commands.calls["sbatch"] == 1
    job = handles[0].native.partition("_")[0]
    assert [handle.native for handle in handles] == [f"{job}_{index}" for index in range(8)]
    for handle in handles:
        await either.until(handle, lambda seen: seen.life is Life.RUNNING and seen.report is not None)
    for index, handle in enumerate(handles):
        await either.until_line(handle, f"script/{index}")
        assert await either.lines(handle) == [f"script/{index}"]
    found = await either.fresh().find([handle.token for handle in handles])
    assert list(found.values()) == handles
    await either.backend.cancel(handles[3])
    await either.end(handles[3])
    (again,) = await either.submit(either.request(count=8, index=3, attempt=2))
    await either.until(again, lambda seen: seen.life is Life.RUNNING)
    seen = await either.backend.observe(handles)
    assert {index for index, handle in enumerate(handles) if seen[handle.token].life is Life.RUNNING} == {
        0, 1, 2, 4, 5, 6, 7,
    }  # fmt: skip
    assert either.ids(array_name(handles[0].token)) != []


async def test_some_tasks_of_an_array_are_released_and_others_are_not(bare: Bench) -> None:
    handles = await bare.submit(*[bare.request(count=4, index=index) for index in range(4)], release=False)
    await bare.backend.release([handles[0], handles[2], Handle("w.script.9.1.gone9", "99999_1")])
    await bare.until(handles[0], lambda seen: seen.life is Life.RUNNING)
    seen = await bare.backend.observe(handles)
    assert [seen[handle.token].held for handle in handles] == [False, True, False, True]
    await bare.backend.cancel(handles[1])
    assert (await bare.end(handles[1])).life is Life.ENDED
    assert (await bare.look(handles[3])).held


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "partition": (
        {"partition": "nope"},
        "the partition does not exist, or may not be used (“Invalid partition name specified”)",
    ),
    "qos": ({"qos": "nope"}, "the QOS does not exist, or the account may not use it (“Invalid qos specification”)"),
    "constraint": (
        {"constraint": "nope"},
        "no node has the features (constraint) that were asked for (“Invalid feature specification”)",
    ),
    "drained": (
        {"partition": "drained"},
        "the partition is drained or inactive (“Required partition not available (inactive or drain)”)",
    ),
}


@pytest.mark.parametrize(("place", "sentence"), REFUSED.values(), ids=REFUSED)
async def test_what_slurm_refuses(bench: Bench, place: dict[str, object], sentence: str) -> None:
    (outcome,) = await bench.backend.submit([bench.backend.render(bench.request(place=place))])
    assert isinstance(outcome, Rejected)
    assert str(outcome) == f"Slurm refused the job: {sentence}"


@pytest.mark.parametrize(
    ("place", "resources", "reason"),
    [
        ({"partition": "short"}, Resources(time_limit_s=7200), "its time limit is longer than the partition allows"),
        ({"partition": "cpu"}, Resources(nodes=3), "it asks for more nodes than the partition allows"),
    ],
    ids=["time", "nodes"],
)
async def test_what_can_never_start(either: Bench, place: dict[str, object], resources: Resources, reason: str) -> None:
    (handle,) = await either.submit(either.request(place=place, resources=resources))
    seen = await either.until(handle, lambda seen: bool(seen.never))
    assert (seen.life, seen.never, seen.reason) == (Life.PENDING, reason, reason)


async def test_waiting_is_not_never(bare: Bench) -> None:
    (handle,) = await bare.submit(bare.request(place={"partition": "down"}))
    seen = await bare.until(handle, lambda seen: seen.reason == "the partition is down")
    assert (seen.life, seen.never, seen.held) == (Life.PENDING, "", False)


async def test_several_pools_at_once(bare: Bench) -> None:
    request = bare.request(resources=Resources(gpus=2))
    pools = (Pool(name="drained"), Pool(name="gpu-l40s"), Pool(name="gpu-a100"))
    from dataclasses import replace

    (handle,) = await bare.submit(replace(request, pools=pools[1:]))
    seen = await bare.until(handle, lambda seen: seen.life is Life.RUNNING)
    assert seen.pool in ("gpu-l40s", "gpu-a100")


async def test_gpus_and_excluded_nodes(bare: Bench) -> None:
    from dataclasses import replace

    request = bare.request("sh", "-c", "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_NODELIST",
                           place={"partition": "gpu-a100", "env": {"CUDA_VISIBLE_DEVICES": "7"}},
                           resources=Resources(gpus=2, gpu_type="a100", cpus=2, mem_bytes=1 << 30))  # fmt: skip
    (handle,) = await bare.submit(replace(request, exclude_nodes=("a100-1",)))
    seen = await bare.end(handle)
    assert seen.node == "a100-2"
    assert [line async for line in bare.backend.logs(handle)] == ["0,1 a100-2"]


async def test_the_cluster(bare: Bench) -> None:
    handle = await bare.start(bare.request(place={"partition": "gpu-a100", "node_list": "a100-1"},
                                           resources=Resources(gpus=3, gpu_type="a100")))  # fmt: skip
    bare.cluster.drain("l40s-1", "bad cable")
    cluster = await bare.backend.cluster()
    nodes = {node.name: node for node in cluster.nodes}
    one = nodes["a100-1"]
    assert (one.gpus, one.gpus_free, one.gpu_type, one.usable, one.cpus) == (4, 1, "a100", True, 16)
    assert set(one.pools) >= {"gpu-a100", "spot"}
    assert one.features == ("a100", "nvlink")
    bad = nodes["l40s-1"]
    assert (bad.usable, bad.reason, bad.state, bad.gpus_free) == (False, "bad cable", "idle+drain", 0)
    pools = {pool.name: pool for pool in cluster.pools}
    assert pools["gpu-a100"].is_default
    assert pools["short"].max_time_s == 60
    assert not pools["drained"].is_up
    assert pools["spot"].preempt == "REQUEUE"
    assert (await bare.look(handle)).pool == "gpu-a100"


async def test_modules_and_the_preamble_come_after_the_users_environment(bare: Bench) -> None:
    place: dict[str, object] = {
        "env": {"MARK": "a b $(id)", "PATH": "/usr/bin:/bin"},
        "preamble": ('module() { export LOADED="$2" PATH="/from/module:$PATH"; }', "module load x"),
    }
    request = bare.request("sh", "-c", 'printf "%s|%s|%s" "$MARK" "$PATH" "$LOADED"', place=place)
    (handle,) = await bare.submit(request)
    await bare.end(handle)
    text = "\n".join([line async for line in bare.backend.logs(handle)])
    assert text == "a b $(id)|/from/module:/usr/bin:/bin|x"


async def test_a_module_that_is_not_there_ends_the_job_and_says_so(bare: Bench) -> None:
    (handle,) = await bare.submit(bare.request(place={"modules": ("no such $(module)",)}))
    seen = await bare.end(handle)
    assert seen.exit_code == 1
    assert "remuda: module load no such $(module) failed" in seen.evidence


async def test_odd_characters_in_every_field(bare: Bench) -> None:
    """What the scheduler takes arrives as it is; what it cannot take it refuses; nothing is executed."""
    folder = bare.root / "a b$(touch x)'\"é%j"
    folder.mkdir()
    place: dict[str, object] = {
        "workdir": str(folder),
        "output": str(folder).replace("%", "%%") + "/out $(id) `id`.%j",
        "env": {"ODD": "$(touch x) `id` ' \" \\ \t é"},
        "preamble": ('#SBATCH --comment="c $(touch x)"',),
        "directives": ("--mem=100M",),
    }
    request = bare.request("sh", "-c", 'printf "%s\n%s\n" "$PWD" "$ODD"; echo "$SLURM_SUBMIT_DIR"', place=place)
    (handle,) = await bare.submit(request)
    seen = await bare.end(handle)
    assert seen.exit_code == 0, seen
    lines = [line async for line in bare.backend.logs(handle)]
    assert lines == [str(folder), "$(touch x) `id` ' \" \\ \t é", str(folder)]
    assert (folder / f"out $(id) `id`.{handle.native}").exists()
    assert not (folder / "x").exists()
