"""Which cluster Slurm's commands are run for."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

from remuda.backends.registry import environment, slurm_backend
from remuda.base.disk.paths import StatePaths

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_fleet_is_asked_from_the_moment_that_the_host_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = StatePaths(tmp_path)
    paths.fleet.mkdir()
    monkeypatch.setenv("SLURM_CONF", "/etc/site.conf")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    program = tmp_path / "tree" / "squeue"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$SLURM_CONF"\n')
    program.chmod(0o755)
    backend = slurm_backend(paths)
    assert environment(paths) == os.environ
    said = {"SLURM_CONF": f"{paths.fleet}/slurm.conf", "PATH": str(program.parent)}
    paths.fleet_environment.write_text(json.dumps(said))
    assert environment(paths)["PATH"] == f"{program.parent}:/usr/bin:/bin"
    assert asyncio.run(backend.client.commands.ask(("squeue",))) == f"{paths.fleet}/slurm.conf\n"
    paths.fleet_environment.unlink()
    assert environment(paths)["SLURM_CONF"] == "/etc/site.conf"
