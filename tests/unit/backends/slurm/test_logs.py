from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from remuda.backends.base import Handle, Life
from remuda.backends.rundir import allocation_dir
from remuda.backends.slurm.backend import SlurmBackend
from remuda.backends.slurm.logs import expand_pattern, find_log, until_written, values_of
from remuda.backends.slurm.render import SlurmSite

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("pattern", "native", "name"),
    [
        ("slurm-%j.out", "123", "slurm-123.out"),
        ("%x/%5j-%A.log", "123", "w.s.0.1.u/00123-123.log"),
        ("a%%b", "123", "a%b"),
        ("%A_%a_%2a", "9_4", "9_4_04"),
        ("%j.out", "9_4", "*.out"),
        ("%N-%q", "9", "*-%q"),
        ("[x]*", "9", "[[]x][*]"),
        ("a\\%j", "9", "a%j"),
    ],
)
def test_patterns(pattern: str, native: str, name: str) -> None:
    assert expand_pattern(pattern, values_of("w.s.0.1.u", native)) == name


def test_where_the_output_is(tmp_path: Path) -> None:
    folder, work = tmp_path / "attempt", tmp_path / "work dir"
    folder.mkdir()
    work.mkdir()
    assert find_log(folder, "n", "7") == folder / "child.log"
    (folder / "slurm.json").write_text(json.dumps({"output": "o-%j.txt", "error": "", "workdir": str(work)}))
    (work / "slurm-7.out").write_text("x")
    assert find_log(folder, "n", "7") == work / "slurm-7.out"
    (work / "o-7.txt").write_text("x")
    assert find_log(folder, "n", "7") == work / "o-7.txt"
    (folder / "node.log").write_text("x")
    assert find_log(folder, "n", "7") == folder / "node.log"
    (folder / "child.log").write_text("")
    assert find_log(folder, "n", "7") == folder / "child.log"


@pytest.mark.parametrize("first", ["it writes", "it ends"])
async def test_who_follows_from_the_start_waits_for_the_output_itself(tmp_path: Path, first: str) -> None:
    """The node program's own words are there before; who followed those would never see what the task prints."""
    (tmp_path / "node.log").write_text("starting\n")
    over = asyncio.Event()
    waiting = asyncio.create_task(until_written(tmp_path, lambda: wait(over)))
    done, _ = await asyncio.wait({waiting}, timeout=0.05)
    assert not done
    if first == "it writes":
        (tmp_path / "child.log").touch()
    else:
        over.set()
    await asyncio.wait_for(waiting, 60)
    assert find_log(tmp_path, "n", "7").name == ("child.log" if first == "it writes" else "node.log")


async def test_who_follows_from_the_start_gets_the_output_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lives(*_: object) -> Life:
        return Life.RUNNING

    monkeypatch.setattr(SlurmBackend, "_life", lives)
    site = SlurmSite(workloads=tmp_path, node_program=tmp_path / "node", host_file=tmp_path / "host.json")
    backend = SlurmBackend(site)
    handle = Handle("w.script.0.1.abcdefgh", "17")
    folder = allocation_dir(tmp_path, handle.token)
    folder.mkdir(parents=True)
    (folder / "node.log").write_text("starting\n")
    blocks = backend.logs(handle, follow=True).blocks()
    first = asyncio.ensure_future(anext(blocks))
    done, _ = await asyncio.wait({first}, timeout=0.05)
    assert not done
    (folder / "child.log").write_text("printed\n")
    (folder / "exit.json").touch()
    said = await asyncio.wait_for(first, 60) + b"".join([block async for block in blocks])
    assert said == b"printed\n"


async def wait(event: asyncio.Event) -> None:
    await event.wait()
