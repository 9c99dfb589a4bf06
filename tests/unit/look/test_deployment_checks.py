"""What of a recipe would fail is a sentence with its place, before anything is started."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest
from tests import plans

from remuda.backends.base import Cluster, Node, PoolInfo
from remuda.base.disk.paths import StatePaths
from remuda.base.errors import InputError
from remuda.cli import main
from remuda.client import documents
from remuda.look import caller, deployment_checks, deployment_records, planning, recipes
from remuda.look.deployment_checks import on_cluster, on_machine
from remuda.specs.deployment import DeploymentSpec

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.client.documents import Preflight
    from remuda.plan.compile import Finding

RECIPE = """\
schema: 2
name: apart
model: {path: MODEL, name: tiny}
engine: {type: mocker}
roles:
  prefill: {workers: 2, args: {block-size: 16}}
  decode: {workers: 2, args: {block-size: 16, blok-size: 3}, extra_args: "--max-num-sequence 4"}
"""
ENGINE = """\
import argparse
parser = argparse.ArgumentParser()
for flag in ("--model-path", "--block-size", "--max-num-seqs"):
    parser.add_argument(flag)
parser.parse_args()
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without GPUs, and a state directory of its own."""
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(caller, "present_gpus", lambda: ())
    monkeypatch.chdir(tmp_path)


def model(tmp_path: Path, config: str = '{"num_attention_heads": 12}') -> str:
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(config)
    return str(folder)


def look(tmp_path: Path, text: str, *, backend: str = "local", settings: tuple[str, ...] = ()) -> Preflight:
    (tmp_path / "r.yaml").write_text(text.replace("MODEL", model(tmp_path)))
    (seen,) = documents.preflight("r.yaml", planning.facts_of(), documents.Given(settings, backend=backend))
    return seen


def found_in(spec: DeploymentSpec, home: Path) -> list[Finding]:
    return deployment_checks.check(spec, planning.facts_of(StatePaths(home)))


def test_flags_that_the_engine_does_not_list(tmp_path: Path) -> None:
    folder = tmp_path / "site" / "dynamo"
    folder.mkdir(parents=True)
    (folder / "mocker.py").write_text(ENGINE)
    seen = look(tmp_path, f"{RECIPE}environment: {{PYTHONPATH: {tmp_path}/site}}\n")
    assert seen.failures == [
        "r.yaml:7:47: mocker does not know --blok-size (did you mean --block-size?)",
        "r.yaml:7:62: mocker does not know --max-num-sequence (did you mean --max-num-seqs?)",
    ]
    assert seen.notes == []


def test_an_engine_that_cannot_be_asked_is_a_note(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    seen = look(tmp_path, RECIPE, settings=(f"python={python}",))
    assert seen.failures == []
    assert seen.notes == [
        f"r.yaml:{line}: flags of {name} are not checked: {python} does not print those of dynamo.mocker"
        for line, name in (("6:13", "prefill"), ("7:12", "decode"))
    ]


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    seen = look(tmp_path, RECIPE, settings=("python=/no/python",))
    assert seen.failures == ["--set python: there is no interpreter '/no/python'"]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("{", "{0}/config.json is not JSON"),
        ("[" * 100_000, "{0}/config.json is not JSON"),
        ("[1]", "{0}/config.json is not a mapping"),
        ('{"num_attention_heads": "many"}', "{0}/config.json has 'many' for num_attention_heads"),
        (None, "the folder of the model '{0}' has no config.json"),
    ],
    ids=["no JSON", "deep", "a list", "no number", "none"],
)
def test_a_model_that_is_none(tmp_path: Path, config: str | None, sentence: str) -> None:
    folder = model(tmp_path, config or "")
    if config is None:
        (tmp_path / "model" / "config.json").unlink()
    (tmp_path / "r.yaml").write_text(RECIPE.replace("MODEL", folder))
    planned = plans.deployed("r.yaml", backend="local")
    with pytest.raises(InputError) as error:
        plans.check(planned)
    assert str(error.value) == f"r.yaml:3:9: {sentence.replace('{0}', folder)}"
    assert not (tmp_path / "home").exists(), "nothing is written"


@pytest.mark.parametrize(
    ("path", "engine", "sentence", "fails"),
    [
        ("/no/model", "mocker", "there is no folder of a model '/no/model'", True),
        ("/no/model", "llamacpp", "there is no .gguf file of a model '/no/model'", True),
        ("r1", "mocker", "the model 'r1' is not checked: it is neither a folder nor a name in the cluster file", False),
        ("hf:a/b", "mocker", "the model 'hf:a/b' is not checked: it is not on this machine", False),
    ],
)
def test_a_model_that_is_not_there(tmp_path: Path, path: str, engine: str, sentence: str, *, fails: bool) -> None:
    said = {"model": {"path": path}, "engine": engine, "roles": {"agg": {}}}
    found = found_in(DeploymentSpec.model_validate(said), tmp_path)
    assert [(one.path, one.sentence, one.fails) for one in found] == [(("model", "path"), sentence, fails)]


def test_a_file_of_llamacpp_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_text("")
    said = {"model": {"path": str(tmp_path / "m.gguf")}, "engine": "llamacpp", "roles": {"agg": {}}}
    assert found_in(DeploymentSpec.model_validate(said), tmp_path) == []


def test_files_that_nodes_see_too(tmp_path: Path) -> None:
    """On the file system of the state directory what is not here is nowhere; of another one that is not known."""
    said: dict[str, Any] = {
        "model": {"path": f"{tmp_path}/m"}, "engine": "sglang", "backend": "slurm", "container": f"{tmp_path}/c.sqsh",
        "roles": {"agg": {"container": "docker://image"}},
    }  # fmt: skip
    spec = DeploymentSpec.model_validate(said)
    assert [(one.sentence, one.fails) for one in found_in(spec, tmp_path)] == [
        (f"there is no folder of a model '{tmp_path}/m'", True),
        (f"there is no container '{tmp_path}/c.sqsh'", True),
    ]
    elsewhere = "is not checked: nodes may see other files than this machine"
    assert [(one.sentence, one.fails) for one in found_in(spec, tmp_path / "no" / "home")] == [
        (f"the model '{tmp_path}/m' {elsewhere}", False),
        (f"the container '{tmp_path}/c.sqsh' {elsewhere}", False),
    ]


def test_roles_that_do_not_fit_are_refused_by_apply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE.replace("MODEL", model(tmp_path)).replace("16, blok", "32, blok"))
    assert main(["apply", "r.yaml", "--backend", "local"]) == 2
    assert capsys.readouterr().err == (
        "error: r.yaml:7:31: the page size of decode is 32, and that of prefill 16: they must be the same\n"
    )
    assert not (tmp_path / "home").exists(), "nothing is started"


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        seen = look(tmp_path, f"{RECIPE.replace('schema: 2', 'kind: deployment')}frontend: {{port: {port}}}\n")
    assert seen.failures == [f"r.yaml:8:12: port {port} on 127.0.0.1 is in use by another program"]


FIRST = """\
name: old
model: {path: MODEL, container: image}
resources:
  gpu_type: h100
  gpus_per_node: 8
  prefill_nodes: 1
  prefill_workers: 1
  decode_nodes: 2
  decode_workers: 1
slurm: {partition: gpu}
"""


@pytest.mark.parametrize(
    ("more", "setting", "why"),
    [
        ("sglang", "name=a", "sglang is in the container image"),
        ("sglang", "model.container=", "there is no interpreter '/no/python' on this machine"),
        ("trtllm", "name=a", "trtllm takes them from a file"),
    ],
    ids=["image", "interpreter", "file"],
)
def test_a_recipe_for_a_cluster_whose_slurm_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, setting: str, why: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    text = f"{FIRST}python: /no/python\nbackend: {{type: {more}, {more}_config: {{decode: {{tp: 16}}}}}}\n"
    seen = look(tmp_path, text, backend="", settings=(setting,))
    assert [note for note in seen.notes if "checked" in note] == [
        f"r.yaml:8:3: flags of decode are not checked: {why}",
        "r.yaml: the cluster is not checked: scontrol is not on this machine, or not in PATH",
    ]


NODES = tuple(Node(f"n{number}", "idle", True, ("gpu",), gpus=8, gpu_type="h100") for number in range(2))


@pytest.mark.parametrize(
    ("nodes", "settings", "sentences"),
    [
        pytest.param(NODES, (), [], id="all there"),
        pytest.param(NODES, ("slurm.partition=cpu,gpu",), [], id="one of two partitions"),
        pytest.param(
            NODES, ("slurm.partition=gpu,gup",),
            ["--set slurm.partition: there is no partition 'gup' (did you mean 'gpu'?)"],
            id="partition",
        ),
        pytest.param(
            NODES[:1], (), [
                ("r.yaml:8:3: a worker of decode needs 2 nodes with 8 h100 GPUs, and partition gpu has 1: "
                 "nodes there have 8 h100"),
            ], id="number of nodes",
        ),
        pytest.param(
            NODES, ("resources.gpu_type=b200", "resources.decode_nodes=1"), [
                f"r.yaml:{line}:3: a worker of {name} needs 1 node with 8 b200 GPUs, and partition gpu has 0: "
                "nodes there have 8 h100" for line, name in ((6, "prefill"), (8, "decode"))
            ], id="type",
        ),
        pytest.param(
            (), ("resources.decode_nodes=0", "resources.gpus_per_decode=4"), [
                f"r.yaml:{line}:3: a worker of {name} needs 1 node with {gpus} h100 GPUs, and partition gpu has 0: "
                "none has a GPU" for line, name, gpus in ((6, "prefill", 8), (8, "decode", 4))
            ], id="no GPUs at all",
        ),
    ],
)  # fmt: skip
def test_nodes_that_a_cluster_lacks(
    tmp_path: Path, nodes: tuple[Node, ...], settings: tuple[str, ...], sentences: list[str]
) -> None:
    (tmp_path / "r.yaml").write_text(FIRST)
    (recipe,) = recipes.resolve("r.yaml", settings)
    cluster = Cluster(nodes, (PoolInfo("gpu", is_default=True), PoolInfo("cpu")))
    problems = [recipe.loaded.problem(one.path, one.sentence) for one in on_cluster(recipe.loaded.spec, cluster)]
    assert [f"{one.where}: {one.message}" for one in problems] == sentences


@pytest.mark.parametrize(
    ("needs", "usable", "kind", "sentences"),
    [
        (0, None, "", []),
        (8, None, "NVIDIA H100 80GB HBM3", []),
        (8, None, "", []),
        (9, None, "", ["9 GPUs are needed by all workers together, and this machine has 8"]),
        (2, ["6", "7"], "", []),
        (4, ["6", "7"], "", ["4 GPUs are needed by all workers together, and backend.gpus names 2"]),
        (2, ["7", "8"], "", ["no GPU 8 can be seen on this machine"]),
        (1, ["GPU-4c1d"], "", []),
        (8, None, "NVIDIA A100-SXM4-80GB", ["GPUs of this machine are NVIDIA A100-SXM4-80GB, not h100"]),
    ],
)
def test_gpus_of_this_machine(needs: int, usable: list[str] | None, kind: str, sentences: list[str]) -> None:
    said = {"model": {"path": "/m"}, "engine": "vllm", "roles": {"agg": {}}, "gpu_type": "h100",
            "backend": {"type": "local", "gpus": usable}}  # fmt: skip
    spec = DeploymentSpec.model_validate(said)
    assert [one.sentence for one in on_machine(spec, needs, tuple("01234567"), kind)] == sentences


def test_gpus_are_counted_over_all_workers(tmp_path: Path) -> None:
    text = RECIPE.replace("mocker", "vllm").replace("blok-size: 3", "tp: 2").split(", extra_args")[0] + "}\n"
    sentence = "r.yaml:6:13: 4 GPUs are needed by all workers together, and this machine has 0"
    assert sentence in look(tmp_path, text).failures


def test_what_cannot_be_planned_fails(tmp_path: Path) -> None:
    text = RECIPE.replace("blok-size: 3", "model-name: other")
    (failure,) = look(tmp_path, text).failures
    assert failure == (
        "r.yaml:7:47: `roles.decode.args.model-name` is 'other', and --model-name is set to 'tiny' for each worker "
        "(leave it out)"
    )


@pytest.mark.parametrize(
    ("options", "programs", "started", "sentence"),
    [
        ("--container-image=IMAGE", ["apptainer"], "srun", ""),
        ("--chdir=DIR", ["singularity"], "singularity exec", ""),
        (
            "--chdir=DIR",
            [],
            "srun",
            "r.yaml:3:23: the container 'lmsysorg/sglang:v1' is in a registry, and nothing here gets",
        ),
    ],
)
def test_what_gets_an_image_from_a_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, programs: list[str], started: str, sentence: str
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("srun", *programs):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n/bin/echo '  {options}'\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    text = RECIPE.replace("{path: MODEL, ", f"{{path: {model(tmp_path)}, container: 'lmsysorg/sglang:v1', ")
    text = text.replace(f"path: {model(tmp_path)}", "path: hf:a/b")
    failures = look(tmp_path, text, backend="slurm").failures
    assert [failure[: len(sentence)] for failure in failures] == ([sentence] if sentence else [])
    planned = plans.deployed("r.yaml", backend="slurm")
    commands = deployment_records.files(planned, planning.facts_of())[f"{planned.workload.folder}/commands.txt"]
    assert f"{started} " in commands


@pytest.mark.parametrize(
    ("image", "mounts", "args", "sentence"),
    [
        ("/c.sqsh", {}, {"deepep-config": "/configs/deepep.json"},
         ("the container of agg sees no folder /configs, and '/configs/deepep.json' is in it: mount it with "
         "`container_mounts`, or say `srtctl_root` in the cluster file")),
        ("/c.sqsh", {"/my/configs": "/configs/"}, {"deepep-config": "/configs/deepep.json"}, ""),
        ("/c.sqsh", {"/my/deep": "/configs/deep"}, {"deepep-config": "/configs/deep/x.json"}, ""),
        ("/c.sqsh", {}, {"a": "/logs/x", "b": "/model", "c": "/models/x", "d": "/configsx"}, ""),
        (None, {}, {"x": {"deep": "/configs/x"}},
         "agg, which is in no container, sees no folder /configs, and '/configs/x' is in it: write its own path"),
    ],
)  # fmt: skip
def test_folders_that_containers_of_srtctl_have(
    tmp_path: Path, image: str | None, mounts: dict[str, str], args: dict[str, Any], sentence: str
) -> None:
    said = {
        "model": {"path": "/models/m"}, "engine": "sglang", "backend": "slurm", "container": image, "mounts": mounts,
        "roles": {"agg": {"args": args}},
    }  # fmt: skip
    found = deployment_checks.check(
        DeploymentSpec.model_validate(said), planning.facts_of(StatePaths(tmp_path / "no" / "home"))
    )
    assert [one.sentence for one in found if "folder /" in one.sentence] == ([sentence] if sentence else [])


@pytest.mark.parametrize(
    ("pattern", "sentence", "fails"),
    [
        ("(a+)+$", "'(a+)+$' goes back and forth: a search took 0.5 s of CPU time", False),
        (r"(\w+\s?)*$", "' goes back and forth", False),
        ("(?i)out of memory", "", False),
        ("[", "'[' is not a regular expression", True),
        (r"\u00e9", "is not a regular expression: bad escape", True),  # Of text it is one, of bytes it is not.
    ],
    ids=["nested", "words", "flags", "none", "of text only"],
)
def test_a_pattern_is_tried(tmp_path: Path, pattern: str, sentence: str, *, fails: bool) -> None:
    seen = look(tmp_path, f"{RECIPE}health_check: {{extra_fatal_log_patterns: ['{pattern}']}}\n")
    told = [one for one in (seen.failures if fails else seen.notes) if one.startswith("r.yaml:8:")]
    assert len(told) == bool(sentence)
    assert sentence in "".join(told)


def test_as_it_is_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = "".join(f"  {line}\n" for line in RECIPE.replace("MODEL", model(tmp_path)).splitlines())
    changed = "override_a: {name: a}\noverride_b: {roles: {decode: {args: {block-size: 8}}}}\n"
    (tmp_path / "r.yaml").write_text(f"base:\n{body}{changed}")
    assert main(["preflight", "r.yaml:override_a", "--backend", "local"]) == 0
    assert capsys.readouterr().out == "r.yaml:override_a: good\n"
    assert main(["preflight", "r.yaml", "--backend", "local"]) == 1
    failure = "r.yaml:10:38: the page size of decode is 8, and that of prefill 16: they must be the same"
    assert capsys.readouterr().out == f"r.yaml:override_a: good\n# r.yaml:override_b\n{failure}\n"
    assert main(["preflight", "r.yaml", "--backend", "local", "--json"]) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert (first["good"], first["failures"], first["selector"]) == (True, [], "override_a")
    assert (second["good"], second["failures"], second["file"]) == (False, [failure], "r.yaml")
    assert main(["preflight", "r.yaml", "--set", "nonsense=1"]) == 2
    assert StatePaths(tmp_path / "home").workloads.exists() is False
