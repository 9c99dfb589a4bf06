"""What is removed with a workload: the folder that remuda made for it, and nothing that somebody named."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.supervise.bed import Bed
from tests.unit.supervise.build import script

from remuda.base.disk.paths import StatePaths
from remuda.base.errors import Conflict, InputError
from remuda.host.accept import accept
from remuda.host.service import NewWorkload, Service
from remuda.look import run_dirs
from remuda.plan.model import Command, Kind, Workload
from remuda.store.rows import WorkloadRow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Site:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = StatePaths(root / "home")
        self.paths.prepare()
        self.bed = Bed(self.paths.database)
        self.new_host()
        self.precious = root / "precious"
        self.precious.mkdir()
        (self.precious / "thesis.tex").write_text("years of work")

    def new_host(self) -> None:
        self.service = Service(self.bed.journal, self.bed.new_host(), self.paths, self.bed.clock)
        self.service.journal = self.bed.journal

    def workload(self, run_dir: Path | None = None, **changes: object) -> Workload:
        return Workload(
            name="w", kind=Kind.RUN, uid="u1", backend="fake", groups=(script(),),
            run_dir=str(run_dir or self.paths.workload("w")),
        ).model_copy(update=changes)  # fmt: skip

    def deleted(self) -> str:
        self.service.down("w")
        asyncio.run(self.bed.go(30))
        return self.service.remove("w")

    @property
    def is_safe(self) -> bool:
        return (self.precious / "thesis.tex").read_text() == "years of work"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    one = Site(tmp_path)
    yield one
    one.bed.close()


def test_its_own_folder_is_removed(site: Site) -> None:
    site.service.create(site.workload())
    (site.paths.workload("w") / "link").symlink_to(site.precious)
    assert site.deleted() == ""
    assert not site.paths.workload("w").exists()
    assert site.is_safe


@pytest.mark.parametrize("where", ["precious", "home", "home/workloads", "home/workloads/other", "home/workloads/w/.."])
def test_a_creator_cannot_choose_the_folder(site: Site, where: str) -> None:
    with pytest.raises(InputError, match="the run directory of 'w' is ") as caught:
        site.service.create(site.workload(site.root / where))
    assert str(site.root / where) in str(caught.value)
    assert site.bed.host.wants == {}
    assert site.bed.journal.wants() == []


@pytest.mark.parametrize("uid", ["../../../precious", "u/1", "", "U1", "u1-0", "u" * 33])
def test_a_uid_is_no_path(site: Site, uid: str) -> None:
    with pytest.raises(InputError, match="cannot be the uid"):
        site.service.create(site.workload(uid=uid))


def test_a_state_directory_may_have_two_names(site: Site) -> None:
    alias = site.root / "alias"
    alias.symlink_to(site.paths.root)
    site.service.create(site.workload(alias / "workloads" / "w"))
    assert site.deleted() == ""
    assert not site.paths.workload("w").exists()


def test_what_an_earlier_version_recorded_is_left_and_named(site: Site) -> None:
    workload = site.workload(site.precious)
    row = WorkloadRow("w", workload.uid, "run", "fake", workload.model_dump_json())
    site.bed.store.add_workloads(site.bed.journal.fence, [row])
    site.new_host()
    assert site.deleted() == str(site.precious)
    assert site.is_safe
    assert site.bed.journal.wants() == []


def test_a_link_to_what_was_there_before_is_removed_and_not_what_it_leads_to(site: Site) -> None:
    site.paths.workload("w").symlink_to(site.precious)
    site.service.create(site.workload())
    assert site.deleted() == str(site.precious)
    assert site.is_safe
    assert not site.paths.workload("w").is_symlink()


def test_a_mark_of_another_workload_protects_it(site: Site) -> None:
    (site.precious / run_dirs.MARK).write_text(str(site.paths.workload("another")))
    site.paths.workload("w").symlink_to(site.precious)
    site.service.create(site.workload())
    assert site.deleted() == str(site.precious)
    assert site.is_safe


def test_a_link_to_nothing_is_removed(site: Site) -> None:
    (site.root / "data").mkdir()
    workload = site.workload(place={"home": str(site.root / "data")})
    run_dirs.place_elsewhere(workload)
    site.service.create(workload)
    (site.root / "data" / "workloads" / "w").rename(site.root / "purged")
    assert site.deleted() == ""
    assert not site.paths.workload("w").is_symlink()


@pytest.mark.parametrize("was_there", [False, True])
def test_a_folder_in_another_home_is_removed_if_it_was_made_for_it(site: Site, was_there: bool) -> None:
    elsewhere = site.root / "data" / "workloads" / "w"
    if was_there:
        elsewhere.mkdir(parents=True)
        (elsewhere / "results").write_text("mine")
    workload = site.workload(place={"home": str(site.root / "data")})
    run_dirs.place_elsewhere(workload)
    run_dirs.place_elsewhere(workload)
    site.service.create(workload)
    assert site.paths.workload("w").resolve() == elsewhere
    assert site.deleted() == (str(elsewhere) if was_there else "")
    assert elsewhere.exists() is was_there
    assert not site.paths.workload("w").is_symlink()


@pytest.mark.parametrize("is_used", [False, True])
def test_what_was_made_for_a_refused_workload_goes_unless_something_lies_in_it(site: Site, is_used: bool) -> None:
    elsewhere = site.root / "data" / "workloads" / "w"
    workload = site.workload(place={"home": str(site.root / "data")})
    run_dirs.place_elsewhere(workload)
    if is_used:
        (elsewhere / "results").write_text("mine")
    run_dirs.discard(workload)
    assert elsewhere.exists() is is_used
    assert site.paths.workload("w").is_symlink() is is_used


def brought(site: Site, **changes: Any) -> Workload:
    """A workload with a script, a folder and a directory that says what was asked."""
    run_dir = site.paths.workload("w")
    said = site.paths.root / "deployments" / "w_1A"
    files = {
        f"{run_dir}/scripts/u1/a.sh": "#!/bin/sh\n",
        f"{run_dir}/meet/": "",
        f"{said}/resolved.yaml": "kind: run\n",
    }
    group = script().model_copy(update={"command": Command(argv=(f"{run_dir}/scripts/u1/a.sh",))})
    return site.workload(files=files, folder=str(said), groups=(group,), **changes)


async def test_what_a_workload_brings_along_is_written_before_it_is_recorded(site: Site) -> None:
    await accept(site.service, [NewWorkload(brought(site))])
    run_dir, said = site.paths.workload("w"), site.paths.root / "deployments" / "w_1A"
    script = run_dir / "scripts/u1/a.sh"
    assert (script.read_text(), script.stat().st_mode & 0o777) == ("#!/bin/sh\n", 0o700)
    assert (said / "resolved.yaml").stat().st_mode & 0o777 == 0o600
    assert {path.stat().st_mode & 0o777 for path in (said, said.parent, run_dir, run_dir / "meet")} == {0o700}
    assert (said / "run").resolve() == run_dir.resolve()
    assert site.service.known("w").workload.files == {}, "the record does not keep them"


async def test_a_refused_workload_leaves_nothing(site: Site) -> None:
    before = {*site.paths.root.rglob("*")}
    with pytest.raises(InputError, match="has no backend"):
        await accept(site.service, [NewWorkload(brought(site, backend="other"))])
    with pytest.raises(Conflict, match="is given 2 times in one request"):
        await accept(site.service, [NewWorkload(brought(site)), NewWorkload(site.workload())])
    assert {*site.paths.root.rglob("*")} == before
    await accept(site.service, [NewWorkload(brought(site))])
    there = {*site.paths.root.rglob("*")}
    with pytest.raises(Conflict, match="is up already"):
        await accept(site.service, [NewWorkload(brought(site, uid="u2"))])
    assert {*site.paths.root.rglob("*")} == there


async def test_the_same_asked_for_again_writes_nothing(site: Site) -> None:
    first = await accept(site.service, [NewWorkload(brought(site, kind=Kind.DEPLOYMENT, digest="d"))], again=True)
    there = {*site.paths.root.rglob("*")}
    other = brought(site, kind=Kind.DEPLOYMENT, digest="d", uid="u2").model_copy(update={"folder": "/elsewhere"})
    again = await accept(site.service, [NewWorkload(other)], again=True)
    assert again[0].uid == first[0].uid
    assert again[0].labels["directory"] == f"{site.paths.root}/deployments/w_1A", "the first one's"
    assert {*site.paths.root.rglob("*")} == there


async def test_two_that_ask_for_the_same_at_once_get_the_same(site: Site) -> None:
    asked = [brought(site, kind=Kind.DEPLOYMENT, digest="d", uid=uid) for uid in ("u1", "u2")]
    answers = await asyncio.gather(*(accept(site.service, [NewWorkload(one)], again=True) for one in asked))
    assert {views[0].uid for views in answers} == {"u1"}


async def test_what_cannot_be_written_is_one_sentence(site: Site) -> None:
    (site.paths.root / "deployments").write_text("a file, where a folder should be")
    with pytest.raises(InputError, match=r"resolved.yaml cannot be written: not a directory"):
        await accept(site.service, [NewWorkload(brought(site))])
    assert not site.paths.workload("w").exists()
    assert site.bed.host.wants == {}


def test_secrets_of_what_was_never_recorded_go(site: Site) -> None:
    """What ran may be recorded in another copy of the database, so its secrets stay until somebody cleans up."""
    kept = {"recorded": "u1", "ran": "u2"}
    for name, uid in [*kept.items(), ("recorded", "u3"), ("lost", "u4")]:
        site.paths.folder(site.paths.workload(name) / "secrets" / uid)
    site.paths.folder(site.paths.workload("ran") / "script-0" / "attempt-1-u2")
    run_dirs.clean(site.paths, {"recorded": "u1"})
    found = {path.parents[1].name: path.name for path in site.paths.workloads.glob("*/secrets/*")}
    assert found == kept
    assert not site.paths.workload("lost").exists()
    (left,) = run_dirs.stale_secrets(site.paths, {"recorded": "u1"})
    assert left == site.paths.workload("ran") / "secrets" / "u2"
