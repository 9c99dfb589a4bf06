"""The words that start a command in its image, for each program that can."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.unit.supervise.build import group

from remuda.backends.container import RC, Steps, enroot_name, in_image
from remuda.base.errors import InputError
from remuda.plan.model import CONTAINER_MARK, Command, Group, NodeSpan, Resources, Secret

FOLDER = Path("/run/w/a 1")
KEY = Secret(file="/keys/hf")


def planned(image: str, *, gpus: int = 0, cpus: int = 0, workdir: str = "/my work") -> Group:
    command = Command(argv=("serve", "m"), env={"A": "1"}, secret_env={"HF_TOKEN": KEY}, image=image,
                      mounts=("/models", "/run"), workdir=workdir)  # fmt: skip
    return group().model_copy(update={"command": command, "resources": Resources(gpus=gpus, cpus=cpus)})


def words(image: str, program: str = "", steps: Steps | None = None, **asked: int) -> list[str]:
    """Before the command itself."""
    argv = in_image(planned(image, **asked), FOLDER, program, steps)[0].command.argv  # type: ignore[arg-type]
    assert argv[-2:] == ("serve", "m")
    return list(argv[:-2])


@pytest.mark.parametrize(
    ("image", "program", "has_steps", "first"),
    [
        ("/i/e.sif", "", True, CONTAINER_MARK),
        ("/i/e.sif", "", False, CONTAINER_MARK),
        ("/i/e.sif", "singularity", True, "singularity"),
        ("/i/e.sqsh", "", True, "srun"),
        ("/i/e.sqsh", "", False, "enroot"),
        ("/i/e.sqsh", "enroot", True, "enroot"),
        ("docker://a/b", "", True, "srun"),
        ("docker://a/b", "", False, CONTAINER_MARK),
        ("docker://a/b", "apptainer", True, "apptainer"),
        ("nvcr.io/nvidia/x:1", "", True, "srun"),
        ("nvcr.io#nvidia/x:1", "", True, "srun"),
        ("lmsysorg/sglang:v1", "", True, "srun"),
        ("./e.sif", "", True, CONTAINER_MARK),
        ("e.sif", "", True, CONTAINER_MARK),
        ("oras://a/b", "", True, CONTAINER_MARK),
    ],
)
def test_which_program_starts_an_image(image: str, program: str, has_steps: bool, first: str) -> None:
    assert words(image, program, Steps() if has_steps else None)[0] == first


def test_apptainer() -> None:
    said = ["apptainer", "exec", "--nv", "--bind", "/models", "--bind", "/run", "/i/e.sif"]
    assert words("/i/e.sif", "apptainer", gpus=1) == said
    assert "--nv" not in words("/i/e.sif", "apptainer")
    command = in_image(planned("/i/e.sif"), FOLDER)[0].command
    assert (command.env["A"], command.env["APPTAINERENV_A"], command.env["SINGULARITYENV_A"]) == ("1", "1", "1")
    assert (command.env["PYTHONPATH"], command.secret_env["APPTAINERENV_HF_TOKEN"]) == ("", KEY)
    assert (command.image, command.mounts, command.outside) == ("", (), False)


def test_enroot() -> None:
    said = words("/i/e.sqsh", gpus=1)
    names = [after for before, after in pairwise(said) if before == "--env"]
    assert names[:3] == ["NVIDIA_VISIBLE_DEVICES=all", "A", "HF_TOKEN"]
    assert "CUDA_VISIBLE_DEVICES" in names
    assert said[:5] == ["enroot", "start", "--rw", "--rc", f"{FOLDER}/{RC}"]
    assert said[-5:] == ["--mount", "/models:/models", "--mount", "/run:/run", "/i/e.sqsh"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in words("/i/e.sqsh")
    assert "CUDA_VISIBLE_DEVICES" not in words("/i/e.sqsh"), "an empty one would hide all GPUs"
    made, files = in_image(planned("/i/e.sqsh"), FOLDER)
    assert files == {f"{FOLDER}/{RC}": "cd '/my work' || exit 1\nexec \"$@\"\n"}
    assert (made.command.env, made.command.secret_env) == ({"A": "1"}, {"HF_TOKEN": KEY})
    with pytest.raises(InputError, match=r"^image: enroot starts image files, and 'docker://a/b' is not one$"):
        words("docker://a/b", "enroot")


def test_pyxis() -> None:
    said = words("/i/e.sqsh", "pyxis", cpus=4)
    assert said[0] == "srun"
    assert said[-4:] == ["--cpus-per-task=4", "--container-image=/i/e.sqsh",
                         "--container-mounts=/models:/models,/run:/run", "--container-workdir=/my work"]  # fmt: skip
    assert in_image(planned("/i/e.sqsh"), FOLDER, "pyxis")[0].command.outside
    named = words("/i/e.sqsh", steps=Steps("w.r.0.1.u", ("python", "zipapp")), gpus=1)
    assert named[:6] == ["python", "zipapp", "step", "w.r.0.1.u", str(FOLDER), "--"]
    assert named[-3:] == ["--job-name=w.r.0.1.u", "env", "CUDA_VISIBLE_DEVICES=__REMUDA_DEVICES__"]


@pytest.mark.parametrize(
    ("image", "pyxis", "apptainer"),
    [
        ("docker://nvcr.io/nvidia/x:1", "nvcr.io#nvidia/x:1", "docker://nvcr.io/nvidia/x:1"),
        ("nvcr.io/nvidia/x:1", "nvcr.io#nvidia/x:1", "docker://nvcr.io/nvidia/x:1"),
        ("nvcr.io#nvidia/x:1", "nvcr.io#nvidia/x:1", "docker://nvcr.io/nvidia/x:1"),
        ("localhost:5000/x", "localhost:5000#x", "docker://localhost:5000/x"),
        ("lmsysorg/sglang:v1", "lmsysorg/sglang:v1", "docker://lmsysorg/sglang:v1"),
        ("docker.io/lmsysorg/sglang:v1", "lmsysorg/sglang:v1", "docker://lmsysorg/sglang:v1"),
        ("ubuntu", "ubuntu", "docker://ubuntu"),
        ("/i/e.sif", "/i/e.sif", "/i/e.sif"),
        ("/i/sandbox", "/i/sandbox", "/i/sandbox"),
        ("oras://a/b", "oras://a/b", "oras://a/b"),
    ],
)
def test_an_image_as_each_program_writes_it(image: str, pyxis: str, apptainer: str) -> None:
    assert f"--container-image={pyxis}" in words(image, "pyxis")
    assert words(image, "apptainer")[-1] == apptainer
    assert enroot_name(image) == pyxis


def test_ranks_of_mpi_are_one_step_over_all_nodes() -> None:
    plain = planned("/i/e.sqsh").model_copy(update={"resources": Resources(gpus=2, nodes=2)})
    wide = plain.model_copy(update={"command": plain.command.model_copy(update={"ranks": 4})})
    bare = wide.model_copy(update={"command": wide.command.model_copy(update={"image": ""})})
    start = ["python", "zipapp", "step", "w.r.0.1.u", str(FOLDER), "--", "srun", "--overlap", "--nodes=2",
             "--ntasks=4", "--export=ALL", "--mpi=pmix", "--ntasks-per-node=2", "--kill-on-bad-exit=1",
             "--cpu-bind=none"]  # fmt: skip
    steps = Steps("w.r.0.1.u", ("python", "zipapp"))
    command = in_image(bare, FOLDER, "", steps)[0].command
    assert list(command.argv) == [*start, "--job-name=w.r.0.1.u", "serve", "m"]
    assert (command.outside, command.env) == (True, {"A": "1"})
    assert in_image(bare, FOLDER, "apptainer", steps)[0].command.argv == command.argv
    shared = in_image(bare, FOLDER, "", replace(steps, first=3))[0].command.argv
    assert [word for word in shared if word not in command.argv] == ["--relative=3"]
    inside = in_image(wide, FOLDER, "", steps)[0].command.argv
    assert list(inside[: len(start)]) == start
    assert inside[len(start)] == "--container-image=/i/e.sqsh"
    sif = in_image(wide.model_copy(update={"command": wide.command.model_copy(update={"image": "/i/e.sif"})}), FOLDER,
                   "apptainer", steps)[0].command.argv  # fmt: skip
    assert list(sif[: len(start) + 3]) == [*start, "--job-name=w.r.0.1.u", "apptainer", "exec"]
    one = wide.model_copy(update={"resources": Resources(gpus=4)})
    words = in_image(one, FOLDER, "", steps)[0].command.argv
    assert {"--nodes=1", "--ntasks=4", "--ntasks-per-node=4", "--nodelist=__REMUDA_NODE__"} < set(words)
    assert words[-4:-2] == ("env", "CUDA_VISIBLE_DEVICES=__REMUDA_DEVICES__")
    assert in_image(bare, FOLDER) == (bare, {}), "where nothing has steps they are the program's own"


def test_what_other_nodes_run_is_in_the_image_too() -> None:
    spread = NodeSpan(nodes=2, member=["member"], head=["head"])
    wide = planned("/i/e.sif").model_copy(update={"spread": spread})
    made = in_image(wide, FOLDER, "apptainer")[0]
    prefix = made.command.argv[:-2]
    assert made.spread is not None
    assert (made.spread.member, made.spread.head, made.spread.ask) == ([*prefix, "member"], [*prefix, "head"], [])


def test_without_an_image_nothing_changes() -> None:
    plain = group()
    assert in_image(plain, FOLDER) == (plain, {})
