"""Whatever stands in a recipe is a word of a command or refused; it never becomes a command, an option or a line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploymentcases import FRONT, SITE

from remuda.backends.base import Request, TaskKey, make_token
from remuda.backends.slurm.render import SlurmSite, render
from remuda.base.errors import InputError
from remuda.plan.deployment import plan_deployment
from remuda.specs.reading.document import parse
from remuda.specs.reading.resolve import Override
from remuda.specs.recipe.load import build

WHERE = SlurmSite(Path("/run"), Path("/node.pyz"), Path("/host.json"), "python3")
RECIPE: dict[str, Any] = {
    "schema": 2, "name": "x", "engine": "sglang", "model": {"path": "/m", "name": "m"},
    "slurm": {"partition": "p"}, "roles": {"prefill": {"nodes": 1}, "decode": {"nodes": 1}},
}  # fmt: skip
NASTY = ("$(touch PWN)", "`touch PWN`", "a; touch PWN #", "a\ntouch PWN", "a\n#SBATCH --comment=PWN", "' PWN", '" PWN',
         "a --uid=0 PWN", "--PWN", "\u2028PWN", "\\PWN", "a,b:PWN")  # fmt: skip
PLACES = (
    "model.path", "model.name", "model.container", "roles.prefill.args.X", "roles.prefill.env.X", "environment.X",
    "roles.prefill.container", "slurm.partition", "slurm.account", "slurm.qos", "sbatch_directives.comment",
    "sbatch_directives.X", "srun_options.X", "roles.decode.srun_options.X", "container_mounts.X", "frontend.args.X",
    "slurm.frontend_partition", "name",
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("nasty", NASTY, ids=repr)
def test_a_value_of_a_recipe_stays_a_value(place: str, nasty: str) -> None:
    data = json.loads(json.dumps(RECIPE))
    *above, last = place.split(".")
    inner = data
    for part in above:
        inner = inner.setdefault(part, {})
    inner[nasty if last == "X" else last] = "v" if last == "X" else nasty
    harmless(yaml.safe_dump(data), ())


@pytest.mark.parametrize("place", [place for place in PLACES if place != "name"])
def test_every_place_is_one_that_reaches_a_job(place: str) -> None:
    """So that what is refused above is refused for its value."""
    data = json.loads(json.dumps(RECIPE))
    *above, last = place.split(".")
    inner = data
    for part in above:
        inner = inner.setdefault(part, {})
    inner["plain" if last == "X" else last] = "v" if last == "X" else "plain"
    if place in ("srun_options.X", "roles.decode.srun_options.X", "container_mounts.X"):
        data["model"]["container"] = "docker://image"
    spec = build(parse(yaml.safe_dump(data), "r.yaml"), "", [])[0].loaded.spec
    workload = plan_deployment(spec, FRONT, SITE).workload.model_dump_json(exclude={"labels", "front"})
    assert "plain" in workload or place == "frontend.args.X", "the frontend's words are rendered by its router"


@pytest.mark.parametrize("nasty", NASTY, ids=repr)
def test_a_value_of_the_command_line_stays_a_value(nasty: str) -> None:
    harmless(yaml.safe_dump(RECIPE), [Override("roles.prefill.args.context-length", nasty, "--set")])


def harmless(text: str, overrides: Any) -> None:
    """What is rendered of a recipe has no line and no word but those that were meant; or it is refused."""
    try:
        spec = build(parse(text, "r.yaml"), "", overrides)[0].loaded.spec
        workload = plan_deployment(spec, FRONT, SITE).workload
        jobs = [
            render(Request(key, 1, make_token(key, 1, "uid12345"), workload, group), WHERE)
            for group in workload.groups
            if not group.backend
            for key in [TaskKey("x", group.name, 0)]
        ]
    except InputError:
        return
    for job in jobs:
        script = next(text for path, text in job.files.items() if path.endswith(".sh"))
        for line in script.split("\n"):
            if "PWN" in line:
                words = shlex.split(line.removeprefix("#SBATCH "))
                assert (line[:8], len(words)) == ("#SBATCH ", 1), line
        assert not any(word.startswith("--PWN") for word in job.argv)
        child = json.loads(next(text for path, text in job.files.items() if path.endswith("child.json")))
        assert all("\0" not in word for word in child["argv"])
