"""How jobs end on a real Slurm, and what the backend says about it."""

from __future__ import annotations

import asyncio
import getpass
import sys
import time
from typing import TYPE_CHECKING

from remuda.backends.base import CHILD_ENDED, Ending, Life, Observed
from remuda.backends.local.processes import tokens_by_pid
from remuda.plan.model import Resources
from remuda.wire.exit import STOPPED

if TYPE_CHECKING:
    from tests.component.slurm.conftest import Bench

SAVES = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


async def test_a_job_that_somebody_cancelled(bench: Bench) -> None:
    handle = await bench.start(bench.request())
    bench.cluster.run("scancel", handle.native)
    seen = await bench.end(handle)
    assert (seen.life, seen.ending) == (Life.ENDED, Ending.CANCELLED)
    # The accounting lags; who did it is told as soon as it knows.
    seen = await bench.until(handle, lambda seen: bool(seen.by))
    assert seen.by == getpass.getuser()
    assert seen.reason.startswith(f"cancelled by {getpass.getuser()}")


async def test_without_accounting_nobody_knows_who_cancelled(bare: Bench) -> None:
    handle = await bare.start(bare.request())
    bare.cluster.run("scancel", handle.native)
    seen = await bare.end(handle)
    assert (seen.ending, seen.by) == (Ending.CANCELLED, "")


async def test_a_pending_job_that_somebody_cancelled(either: Bench) -> None:
    (handle,) = await either.submit(either.request(), release=False)
    assert (await either.look(handle)).held
    either.cluster.run("scancel", handle.native)
    seen = await either.end(handle)
    assert (seen.ending, seen.exit_code) == (Ending.CANCELLED, None)


async def test_our_own_cancel_is_no_cancel_of_slurms(either: Bench) -> None:
    handle = await either.start(either.request("sh", "-c", SAVES))
    await either.until_line(handle, "ready")
    await either.backend.cancel(handle)
    seen = await either.end(handle)
    assert (seen.ending, seen.exit_code) == (Ending.NONE, STOPPED)
    assert [line async for line in either.backend.logs(handle)][-1] == "saved"


async def test_a_held_job_that_we_cancel_leaves_the_queue(either: Bench) -> None:
    (handle,) = await either.submit(either.request(), release=False)
    await either.backend.cancel(handle)
    assert (await either.end(handle)).life is Life.ENDED
    states = either.cluster.run("squeue", "-h", "-t", "all", "-o", "%j %T").stdout.splitlines()
    assert f"{handle.token} CANCELLED" in states


async def test_a_job_that_used_too_much_memory(either: Bench) -> None:
    """Slurm records a signal, as of any other kill; that it was for its memory is only in the job's output."""
    greedy = "b = bytearray(500 << 20); b[::4096] = b'x' * len(b[::4096]); import time; time.sleep(300)"
    (handle,) = await either.submit(
        either.request(sys.executable, "-c", greedy, resources=Resources(mem_bytes=64 << 20))
    )
    seen = await either.end(handle)
    assert seen.ending is Ending.OUT_OF_MEMORY
    assert "exceeded" in seen.reason


async def test_the_time_limit(either: Bench) -> None:
    handle = await either.start(either.request(resources=Resources(time_limit_s=3600)))
    seen = await either.look(handle)
    assert 3000 < seen.limit_at - time.time() <= 3660
    either.cluster.expire(int(handle.native))
    seen = await either.end(handle)
    assert (seen.life, seen.ending) == (Life.ENDED, Ending.TIME_LIMIT)
    assert seen.reason.startswith("ended by Slurm at its time limit")


async def test_preempted_for_good(either: Bench) -> None:
    gpus = Resources(gpus=4, gpu_type="a100")
    low = [
        await either.start(either.request(place={"partition": "spotc"}, resources=gpus, name=f"low{number}"))
        for number in range(2)
    ]
    await either.start(either.request(place={"partition": "gpu-a100"}, resources=gpus, name="high"))
    seen = await either.backend.observe(low)
    victims = [handle for handle in low if seen[handle.token].life is Life.ENDED]
    victims = victims or [handle for handle in low if (await either.look(handle)).native_state != "RUNNING"]
    ends = [await either.end(handle) for handle in victims]
    assert [end.ending for end in ends] == [Ending.PREEMPTED]


async def test_preempted_and_put_back_by_slurm(either: Bench) -> None:
    gpus = Resources(gpus=4, gpu_type="a100")
    place = {"partition": "spot", "requeue": True, "node_list": "a100-1"}
    low = await either.start(
        either.request("sh", "-c", "echo run; sleep 3600", place=place, resources=gpus, name="low")
    )
    place = {"partition": "gpu-a100", "node_list": "a100-1"}
    high = await either.start(either.request(place=place, resources=gpus, name="high"))
    seen = await either.until(low, lambda seen: seen.life is Life.PENDING and seen.requeues == 1)
    assert (seen.held, seen.native) == (False, low.native)
    await either.backend.cancel(high)
    seen = await either.until(low, lambda seen: seen.life is Life.RUNNING and seen.report is not None)
    assert seen.requeues == 1


async def test_a_job_that_is_not_to_be_requeued_ends_with_its_node(either: Bench) -> None:
    handle = await either.start(either.request())
    node = (await either.look(handle)).node
    assert node in ("cpu-1", "cpu-2")
    either.cluster.crash(node)
    seen = await either.end(handle)
    assert (seen.life, seen.ending, seen.node) == (Life.ENDED, Ending.NODE_FAILED, node)
    assert seen.exit_code is None


async def test_the_scripts_own_code_cannot_be_taken_for_the_node_programs(either: Bench) -> None:
    (handle,) = await either.submit(either.request("sh", "-c", f"exit {STOPPED}"))
    seen = await either.end(handle)
    assert (seen.exit_code, seen.native_state) == (STOPPED, CHILD_ENDED)


async def test_an_interpreter_that_is_not_there(either: Bench) -> None:
    (handle,) = await either.submit(either.request(place={"python": "/no/such/python"}))
    seen = await either.end(handle)
    assert seen.exit_code == 127
    assert seen.reason == "the job script ended with code 127 without a last word of the node program"
    assert "/no/such/python" in seen.evidence


async def test_an_output_file_that_cannot_be_opened(either: Bench) -> None:
    place: dict[str, object] = {"output": "/proc/no/such/%j.out"}
    (handle,) = await either.submit(either.request(place=place))
    seen = await either.end(handle)
    assert seen.ending is Ending.NOT_STARTED
    assert seen.reason == "Slurm could not open its output file on the node"


async def test_everything_killed_at_once(either: Bench) -> None:
    handle = await either.start(either.request())
    await either.backend.cancel(handle, force=True)
    seen = await either.end(handle)
    assert (seen.life, seen.ending) == (Life.ENDED, Ending.CANCELLED)
    assert handle.token not in tokens_by_pid().values()


async def test_ended_and_forgotten_by_the_queue(bench: Bench) -> None:
    """What squeue does not list any more is asked of sacct, and the run directory knows more."""
    (handle,) = await bench.submit(bench.request("sh", "-c", "exit 7"))
    assert (await bench.end(handle)).exit_code == 7
    bench.instead("squeue", "exit 0")
    seen = await bench.until(handle, lambda seen: seen.native_state == CHILD_ENDED)
    assert (seen.life, seen.exit_code) == (Life.ENDED, 7)
    async with asyncio.timeout(180):
        while not (found := await bench.backend.find([handle.token])):
            await asyncio.sleep(0.1)
    assert found == {handle.token: handle}


async def test_ended_and_forgotten_by_slurm_where_there_is_no_accounting(bare: Bench) -> None:
    (handle,) = await bare.submit(bare.request("sh", "-c", "exit 7"))
    await bare.end(handle)
    bare.instead("squeue", "exit 0")
    seen: Observed = await bare.look(handle)
    assert (seen.life, seen.exit_code, seen.native_state) == (Life.ENDED, 7, CHILD_ENDED)
