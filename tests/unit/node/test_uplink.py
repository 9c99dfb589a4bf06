"""Whom an allocation tells its key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until

from remuda.node.uplink import Uplink

if TYPE_CHECKING:
    from pathlib import Path

    from tests.strangers import Squatter


@pytest.mark.parametrize("lets_go", [False, True])
def test_who_has_the_port_of_a_host_that_is_gone_hears_nothing(
    squatter: Squatter, tmp_path: Path, lets_go: bool
) -> None:
    squatter.takes(lets_go=lets_go)
    (tmp_path / "host.json").write_text(json.dumps({"report_host": "127.0.0.1", "report_port": squatter.port}))
    (tmp_path / "key").write_text("s3cr3t")
    uplink = Uplink(str(tmp_path / "host.json"), tmp_path / "key", "w.replica.0.1.x")
    uplink.tell("{}", 1.0)

    def is_dropped() -> bool:
        uplink.advance(1.0)
        return uplink.socket is None

    until(is_dropped, "it has seen whose port that is")
    assert uplink.due > 1.0
    squatter.until("served")
    assert squatter.heard == b""
