"""Allocations of nodes with files of their own, as Slurm is asked for them, and what is known of them."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.fakes.clock import FakeClock
from tests.unit.backends.slurm.test_observing import LINE
from tests.unit.backends.slurm.test_render import request

from remuda.backends.base import Handle, Life
from remuda.backends.slurm.backend import SlurmBackend
from remuda.backends.slurm.carried import OWED_S, is_silent, owed, render
from remuda.backends.slurm.render import SlurmSite
from remuda.base.errors import InputError
from remuda.fleet.carried.carrier import Carrier
from remuda.plan.model import Listen, Resources
from remuda.wire.carrying import ADDRESS_MARK, PYTHON_MARK

if TYPE_CHECKING:
    from remuda.backends.slurm.client import SlurmClient

SITE = SlurmSite(Path("/home/me/.remuda/workloads"), Path("/home/me/node.pyz"), Path("/home/me/host.json"))
FOLDER = "/home/me/.remuda/workloads/w/script-0/attempt-1-abc"


def test_the_job_has_no_content_and_no_path_of_the_head() -> None:
    made = render(request(env={"A": "secret words"}, place={"env": {"B": "others"}}), SITE)
    assert made.argv == (
        "sbatch", "--job-name=w.script.0.1.abc", "--parsable", "--hold", "--export=NONE", "--open-mode=append",
        "--no-requeue", "--chdir=/", "--output=/dev/null", f"{FOLDER}/job.sh",
    )  # fmt: skip
    assert made.files[f"{FOLDER}/job.sh"] == (
        "#!/bin/sh\n"
        "export REMUDA_TOKEN=w.script.0.1.abc\n"
        "export SLURM_EXPORT_ENV=ALL\n"
        'exec "${SLURM_CONF%/*}/remuda-carried"\n'
    )
    child = json.loads(made.files[f"{FOLDER}/child.json"])
    assert (child["host_file"], child["fence_file"], child["guard"]) == ("", "", None)
    assert child["env"] == {"A": "secret words", "B": "others"}


def test_a_server_is_told_its_own_machines_address_and_interpreter() -> None:
    asked = request(listen=Listen(public=True))
    command = asked.group.command.model_copy(update={"argv": (sys.executable, "-m", "engine")})
    group = asked.group.model_copy(update={"command": command, "silence_s": 60.0})
    child = json.loads(render(replace(asked, group=group), SITE).files[f"{FOLDER}/child.json"])
    assert (child["argv"], child["advertise_host"]) == ([PYTHON_MARK, "-m", "engine"], ADDRESS_MARK)
    assert child["report_every_s"] == child["beat_s"] == 2.0, "its silence is counted, and only its files speak"
    carrier = Carrier(Path("/node"), None, print, lambda: "10.0.0.7")  # type: ignore[arg-type]
    filled = json.loads(carrier._filled(json.dumps(child)))
    assert (filled["argv"], filled["advertise_host"]) == ([sys.executable, "-m", "engine"], "10.0.0.7")


def test_parts_that_find_each_other_by_files_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        render(request(env={"DYN_FILE_KV": "/x"}), SITE)
    assert caught.value.message == (
        "dynamo.discovery: parts of Dynamo would find each other by files, and the nodes of this fleet have files of "
        "their own"
    )


def test_tasks_of_a_group_are_jobs_of_their_own() -> None:
    assert render(request(count=3, index=2), SITE).together is None


@pytest.mark.parametrize("name", ["output", "modules", "preamble", "requeue", "log_directory"])
def test_what_means_nothing_there_is_refused(name: str) -> None:
    value = {"modules": ("cuda",), "preamble": ("true",), "requeue": True}.get(name, "/x")
    with pytest.raises(
        InputError, match=rf"^{name}: nodes of this fleet have files of their own, where '{name}' means nothing$"
    ):
        render(request(place={name: value}), SITE)


def test_a_folder_of_logs_that_nobody_asked_for_is_not_written() -> None:
    place: dict[str, object] = {"home": "/home/me/.remuda", "log_directory": "/home/me/.remuda/logs"}
    child = json.loads(render(request(place=place), SITE).files[f"{FOLDER}/child.json"])
    assert child["copy_to"] == ""


def test_what_spans_nodes_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        render(request(resources=Resources(nodes=2)), SITE)
    assert caught.value.message == (
        "nodes: what spans several nodes needs a directory that they share, and the nodes of this fleet have files of "
        "their own"
    )
    assert caught.value.hint == "give all machines of the fleet the head's state directory at the same path"


def test_whether_allocations_are_carried_is_asked_of_a_file(tmp_path: Path) -> None:
    site = replace(SITE, carried_file=tmp_path / "carried")
    assert not SITE.is_carried
    assert not site.is_carried
    (tmp_path / "carried").touch()
    assert site.is_carried


@pytest.mark.parametrize(
    ("kept", "state", "late_s", "is_owed"),
    [
        ({"node": "box"}, "COMPLETED", 1.0, True),
        ({"node": "box"}, "FAILED", 1.0, True),
        ({"node": "box"}, "NODE_FAIL", 1.0, False),
        ({"node": "box"}, "COMPLETED", OWED_S + 1, False),
        ({"node": "box"}, "COMPLETED", -OWED_S - 1, False),
        ({"node": "box", "done": True}, "COMPLETED", 1.0, False),
        (None, "COMPLETED", 1.0, False),
    ],
)
def test_an_end_counts_when_its_node_has_told_all_of_it(
    kept: dict[str, object] | None, state: str, late_s: float, is_owed: bool
) -> None:
    line = replace(LINE, state=state, ends_at=1000.0)
    seen = owed(kept or {}, line, 1000.0 + late_s)
    assert (seen is not None) == is_owed
    if seen is not None:
        assert (seen.life, seen.unread) == (Life.RUNNING, True)


def test_a_node_that_was_not_heard_for_ten_seconds_is_silent(tmp_path: Path) -> None:
    heard, kept = tmp_path / "box", {"node": "box"}
    assert not is_silent({}, tmp_path, 1000.0)  # it is not carried
    assert is_silent(kept, tmp_path, 1000.0)
    heard.touch()
    os.utime(heard, (990.0, 990.0))
    assert not is_silent(kept, tmp_path, 1000.0)
    assert is_silent(kept, tmp_path, 1001.0)
    assert is_silent(kept, tmp_path, 900.0), "the head's clock was set back: what lives is heard by the new one"


class Runs:
    """A Slurm in which one job runs."""

    async def queue(self) -> list[Any]:
        return [replace(LINE, name="w.script.0.1.abc", state="RUNNING", nodes="box", started_at=990.0)]

    async def details(self, *_: object) -> dict[str, Any]:
        return {}


async def test_what_does_not_come_any_more_is_said(tmp_path: Path) -> None:
    site = replace(SITE, workloads=tmp_path / "workloads")
    backend = SlurmBackend(site, cast("SlurmClient", Runs()), clock=FakeClock())
    folder = site.workloads / "w" / "script-0" / "attempt-1-abc"
    folder.mkdir(parents=True)
    handle = Handle("w.script.0.1.abc", "7")
    for more, reason in ({}, ""), ({"full": "it is too much"}, "it is too much"):
        (folder / "carried.json").write_text(json.dumps({"node": "box", "job": "7", **more}))
        assert (await backend.observe([handle]))[handle.token].reason == reason
