"""What is to end is ended although nothing can be recorded, and recorded as soon as it can; nothing else is done."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.look.test_run_dirs import Site
from tests.unit.supervise.bed import only

from remuda.base.errors import Unwritable
from remuda.supervise.model import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.supervise.bed import Bed


class Full(Site):
    """Its disk can be full."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.is_full = False
        store, change = self.bed.store, self.bed.store.changing

        @contextmanager
        def changing() -> Iterator[Any]:
            if self.is_full:
                raise Unwritable("no space left")
            with change() as connection:
                yield connection

        store.changing = changing  # type: ignore[method-assign]

    @property
    def living(self) -> list[str]:
        return self.bed.backend.living()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Full]:
    one = Full(tmp_path)
    yield one
    one.is_full = False
    one.bed.close()


def same(bed: Bed) -> bool:
    """Whether the host's memory is what is recorded."""
    return bed.host.wants == {want.workload.name: want for want in bed.journal.wants()}


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_it_is_ended_and_recorded_later(site: Full, is_stubborn: bool, many: bool) -> None:
    site.service.create(site.workload())
    await site.bed.all_ready()
    site.bed.backend.made[only(site.bed).token].is_stubborn = is_stubborn
    site.is_full = True
    if many:
        site.service.change_many("down", ["w"])
    else:
        site.service.down("w")
    await site.bed.go(60)
    assert site.living == []
    assert (site.service.view("w").phase, only(site.bed).phase) == ("DOWN", Phase.STOPPED)
    site.service.record_ends()
    assert site.bed.journal.wants()[0].running, "it could not be recorded yet"
    site.is_full = False
    site.service.record_ends()
    await site.bed.go(5)
    assert same(site.bed)
    assert site.bed.written() == [Phase.STOPPED]
    assert [line.reason for line in site.bed.story() if line.kind == "intent"] == ["brought up", "taken down"]
    site.bed.new_host()
    await site.bed.go(60)
    assert (site.living, site.bed.phases()) == ([], [Phase.STOPPED])


async def test_nothing_is_begun_and_everything_else_is_refused(site: Full) -> None:
    site.service.create(site.workload())
    await site.bed.all_ready()
    site.is_full = True
    site.bed.backend.end(only(site.bed).token, 1)
    await site.bed.go(600)
    assert (site.living, list(site.bed.backend.requests)) == ([], ["w.script.0.1.u1"])
    for refused in (
        lambda: site.service.restart("w"),
        lambda: site.service.pause("w", paused=True),
        lambda: site.service.change_many("restart", ["w"]),
        lambda: site.service.create(site.workload().model_copy(update={"name": "x", "run_dir": _of(site, "x")})),
    ):
        with pytest.raises(Unwritable):
            refused()
    assert same(site.bed)
    site.is_full = False
    await site.bed.go(60)
    assert site.living == ["w.script.0.2.u1"]


def _of(site: Site, name: str) -> str:
    return str(site.paths.workload(name))


async def test_wanted_again_before_it_was_recorded(site: Full) -> None:
    site.service.create(site.workload())
    await site.bed.all_ready()
    site.is_full = True
    site.service.down("w")
    await site.bed.go(60)
    site.is_full = False
    site.service.restart("w")
    site.service.record_ends()
    await site.bed.go(60)
    assert same(site.bed)
    assert site.living == ["w.script.0.2.u1"]
