"""What runs in an image on this machine, by what stands in for the programs that start images."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import PYTHON, until
from tests.fakes import containers

from remuda.base.ids import new_suffix
from remuda.plan.model import Command, Group, Kind, Replace, Role, Secret, Workload

if TYPE_CHECKING:
    from tests.conftest import Home


@pytest.mark.parametrize(("program", "image"), [("apptainer", "engine.sif"), ("enroot", "engine.sqsh")])
def test_a_command_in_an_image(home: Home, program: str, image: str) -> None:
    folder, key = home.root / "bin", home.root / "key"
    folder.mkdir()
    (folder / program).write_text(f'#!/bin/sh\nexec {PYTHON} -I {containers.__file__} {program} "$@"\n')
    (folder / program).chmod(0o755)
    (home.root / image).touch()
    key.write_text("hf-secret\n")
    command = Command(
        argv=("/bin/sh", "-c", 'echo "$HF_TOKEN $MODE $REMUDA_TASK $(pwd)" > seen'), env={"MODE": "quiet"},
        secret_env={"HF_TOKEN": Secret(file=str(key))}, cwd=str(home.root), image=str(home.root / image),
        mounts=(str(home.root),), workdir=str(home.root),
    )  # fmt: skip
    group = Group(name="script", role=Role.SCRIPT, count=1, command=command, replace=Replace(policy="never"))
    env = {"PATH": f"{folder}:{home.env['PATH']}", "ASKED": str(home.root / "asked")}
    workload = Workload(name="w", kind=Kind.RUN, uid=new_suffix(8), backend="local", groups=(group,),
                        run_dir=str(home.paths.workload("w")), place={"env": env})  # fmt: skip
    home.run("host", "start")
    home.client.post("/workloads", {"workload": json.loads(workload.model_dump_json()), "spec": ""})
    until(lambda: home.view("w")["phase"] in ("DONE", "FAILED"), "it has ended")
    assert (home.view("w")["phase"], home.view("w")["reason"]) == ("DONE", "")
    assert (home.root / "seen").read_text() == f"hf-secret quiet script/0 {home.root}\n"
    asked: dict[str, Any] = json.loads((home.root / "asked").read_text())
    assert (asked["program"], asked["image"]) == (program, str(home.root / image))
    assert "hf-secret" not in json.dumps(asked)
