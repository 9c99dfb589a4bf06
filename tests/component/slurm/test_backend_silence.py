"""Slurm does not answer, or not what was asked: nothing may be concluded from it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from remuda.backends.base import Handle, Life
from remuda.base.errors import BackendUnreachable, Rejected

if TYPE_CHECKING:
    from tests.component.slurm.conftest import Bench


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo out of order; exit 0", "the answer of squeue could not be read: 'out of order'"),
        (r"printf '\0361|2\n'; exit 0", "the answer of squeue could not be read: '1|2'"),
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
         "squeue gave no answer: slurm_load_jobs error: Unable to contact slurm controller (connect failure)"),
        ("echo 'squeue: error: something is wrong' >&2; exit 0", "squeue gave no answer: something is wrong"),
        ("exit 3", "squeue gave no answer: it ended with code 3"),
        ("kill -9 $$", "squeue was killed by signal 9 before it answered"),
        ("exec sleep 60", "squeue gave no answer within 2 s"),
    ],
    ids=["garbage", "torn", "controller", "error-text", "code", "killed", "frozen"],
)  # fmt: skip
async def test_a_squeue_that_does_not_answer(bare: Bench, script: str, message: str) -> None:
    (handle,) = await bare.submit(bare.request(), release=False)
    bare.instead("squeue", script)
    # Only the one that never answers may be given up: the others may be slow to begin.
    backend = bare.fresh(timeout_s=2 if message.endswith("within 2 s") else 120)
    for verb in (backend.observe([handle]), backend.find([handle.token]), backend.release([handle])):
        with pytest.raises(BackendUnreachable) as caught:
            await verb
        assert str(caught.value) == message
    bare.again("squeue")
    assert (await bare.look(handle)).held


async def test_a_squeue_that_is_not_there(bare: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from remuda.backends.slurm.backend import SlurmBackend
    from remuda.backends.slurm.client import SlurmClient
    from remuda.backends.slurm.commands import Commands

    monkeypatch.setenv("PATH", "/nowhere")
    backend = SlurmBackend(bare.site, SlurmClient(Commands()))
    with pytest.raises(BackendUnreachable) as caught:
        await backend.observe([Handle("w.script.0.1.abc", "1")])
    assert str(caught.value) == "squeue is not on this machine, or not in PATH"
    assert caught.value.hint == "run remuda where Slurm's commands are, e.g. on a login node"
    (outcome,) = await backend.submit([backend.render(bare.request())])
    assert isinstance(outcome, BackendUnreachable)
    assert str(outcome) == "sbatch is not on this machine, or not in PATH"
    with pytest.raises(BackendUnreachable):
        await backend.cluster()


async def test_a_state_that_nobody_knows(bare: Bench) -> None:
    (handle,) = await bare.submit(bare.request(), release=False)
    bare.instead("squeue", '"$REAL" "$@" | sed s/PENDING/HIBERNATING/')
    with pytest.raises(Rejected) as caught:
        await bare.look(handle)
    assert str(caught.value) == "Slurm says that a job's state is 'HIBERNATING', which this version does not know"


async def test_the_controller_is_down_and_comes_back(either: Bench) -> None:
    handle = await either.start(either.request())
    either.cluster.stop("slurmctld")
    with pytest.raises(BackendUnreachable):
        await either.look(handle)
    with pytest.raises(BackendUnreachable):
        await either.backend.cancel(handle, force=True)
    (outcome,) = await either.backend.submit([either.backend.render(either.request(name="other"))])
    assert isinstance(outcome, BackendUnreachable)
    either.cluster.start("slurmctld")
    seen = await either.until(handle, lambda seen: seen.report is not None)
    assert seen.life is Life.RUNNING


async def test_a_controller_that_freezes_while_it_takes_a_job_makes_no_twin(bare: Bench) -> None:
    backend = bare.fresh(timeout_s=4)
    item = backend.render(bare.request())
    bare.cluster.freeze("slurmctld")
    (outcome,) = await backend.submit([item])
    assert isinstance(outcome, BackendUnreachable), outcome
    with pytest.raises(BackendUnreachable):
        await backend.find([item.token])
    bare.cluster.thaw("slurmctld")
    (handle,) = await bare.submit(bare.request())
    await bare.until(handle, lambda seen: seen.life is Life.RUNNING)
    # What was asked for while it was frozen may come into being only now: the next look ends that.
    async with asyncio.timeout(180):
        while _living(bare, item.token) != [handle.native, "RUNNING"]:
            await bare.look(handle)
            await asyncio.sleep(0.1)


def _living(bench: Bench, name: str) -> list[str]:
    return bench.cluster.run("squeue", "-h", f"--name={name}", "-o", "%i %T").stdout.split()


async def test_an_answer_of_sbatchs_that_was_lost(bare: Bench) -> None:
    """The job is there, and nobody was told."""
    bare.instead("sbatch", '"$REAL" "$@" >/dev/null; kill -9 $$')
    item = bare.backend.render(bare.request())
    (outcome,) = await bare.backend.submit([item])
    assert isinstance(outcome, BackendUnreachable)
    assert str(outcome) == "sbatch was killed by signal 9 before it answered"
    bare.again("sbatch")
    (made,) = bare.ids(item.token)
    found = await bare.fresh().find([item.token])
    assert found == {item.token: Handle(item.token, made)}
    assert (await bare.look(found[item.token])).held
    assert await bare.submit(bare.request()) == [Handle(item.token, made)]
    assert bare.ids(item.token) == [made]


async def test_a_twin_that_turned_up_late_is_cancelled(bare: Bench) -> None:
    (handle,) = await bare.submit(bare.request(), release=False)
    item = bare.backend.render(bare.request())
    twin = bare.cluster.run(*item.argv).stdout.strip()
    assert (await bare.look(handle)).held
    states = bare.cluster.run("squeue", "-h", "-t", "all", "-o", "%i %T").stdout.splitlines()
    assert f"{twin} CANCELLED" in states
    assert f"{handle.native} PENDING" in states


async def test_an_id_that_was_given_out_again_is_not_ours(either: Bench) -> None:
    (handle,) = await either.submit(either.request(), release=False)
    ours = Handle("other.script.0.1.uid99", handle.native)
    backend = either.fresh(gone_after_s=0)
    assert (await backend.observe([ours]))[ours.token].life is Life.GONE
    await backend.release([ours])
    await backend.cancel(ours)
    await backend.cancel(ours, force=True)
    assert (await either.look(handle)).held


async def test_a_job_that_the_controller_lost_is_gone_after_a_while(bare: Bench) -> None:
    bare.cluster.save_state()
    (handle,) = await bare.submit(bare.request(), release=False)
    before = await bare.look(handle)
    bare.cluster.lose_state()
    if bare.cluster.run("scontrol", "ping", check=False).returncode:
        bare.cluster.start("slurmctld")
    patient = bare.fresh(gone_after_s=3600)
    assert (await patient.observe([handle]))[handle.token].life is Life.PENDING
    assert (await bare.look(handle)) == before
    assert (await bare.end(handle)).life is Life.GONE


async def test_an_accounting_that_does_not_answer_loses_no_job(bench: Bench) -> None:
    (handle,) = await bench.submit(bench.request(), release=False)
    before = await bench.look(handle)
    bench.instead("squeue", "exit 0")
    bench.instead("sacct", "echo 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1")
    backend = bench.backend
    backend._gone_after_s = 0
    assert (await bench.look(handle)) == before
    with pytest.raises(BackendUnreachable):
        await backend.find([handle.token])
