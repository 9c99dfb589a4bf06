"""Recipes of both versions are read as deployments; what is wrong is said in the words of the file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.base.disk.private import user_name
from remuda.base.errors import InputError
from remuda.specs.reading.document import parse
from remuda.specs.reading.load import assignment
from remuda.specs.recipe import cluster, normal
from remuda.specs.recipe.load import Recipe, build, split_target
from remuda.specs.recipe.words import Fate, words_of

if TYPE_CHECKING:
    from tests.strangers import Stranger

FIRST = """\
name: "gb200-fp4-max-tpt"
model:
  path: "r1"
  container: "latest"
  precision: "fp4"
resources:
  gpu_type: "gb200"
  prefill_nodes: 1
  decode_nodes: 12
  prefill_workers: 1
  decode_workers: 1
  gpus_per_node: 4
slurm:
  account: "your-account"
  partition: "batch"
  time_limit: "4:00:00"
backend:
  prefill_environment: {A: 1}
  sglang_config:
    prefill: {kv_cache_dtype: "fp8_e4m3", mem_fraction_static: 0.84}
    decode: {mem_fraction_static: 0.82, enable-dp: true}
benchmark:
  type: "sa-bench"
  isl: 1024
  osl: 1024
  concurrencies: [1024, 2048, 4096]
  req_rate: "inf"
"""
SECOND = """\
schema: 2
name: tiny
model: {path: /m, container: /c.sqsh}
resources: {gpu_type: h100, gpus_per_node: 8}
engine: {type: mocker, speedup_ratio: 10}
roles:
  prefill: {nodes: 2, workers: 2, args: {block_size: 16}}
  decode: {nodes: 2, workers: 4, env: {B: two}, extra_args: "--x 'y z'"}
services:
  - {name: mine, command: [sleep, "10"], start: infra}
frontend: {type: dynamo}
dynamo: {request_plane: http, source: {pypi: 1.6.0}}
"""
CLUSTERS = {
    "nested": 'cluster: {account: "a", partition: "p", gpus_per_node: 8, default_time_limit: "1:00:00",\n'
              '  network_interface: ib0, default_container: /c.sqsh}\nmodel_paths: {r1: /models/r1}\n',
    "flat": "cluster: name\ndefault_account: a\ndefault_partition: p\ngpus_per_node: 8\nnetwork_interface: ib0\n"
            'default_time_limit: "1:00:00"\ndefault_container: /c.sqsh\n'
            'model_paths: {r1: /models/r1}\nuse_het_jobs: no\n',
}  # fmt: skip


def one(text: str, *settings: str, unset: tuple[str, ...] = (), backend: str = "", other: str = "") -> Recipe:
    known = cluster.of_document(parse(other, "srtslurm.yaml")) if other else None
    (recipe,) = build(
        parse(text, "r.yaml"), "", [assignment(item) for item in settings], unset, cluster=known, backend=backend
    )
    return recipe


def test_the_first_version() -> None:
    spec = one(FIRST).loaded.spec
    assert spec.engine is not None
    assert (spec.engine.type, spec.container, spec.gpu_type, spec.gpus_per_node) == ("sglang", "latest", "gb200", 4)
    assert {name: (role.nodes, role.workers) for name, role in spec.by_name().items()} == {
        "prefill": (1, 1), "decode": (12, 1),
    }  # fmt: skip
    assert spec.by_name()["prefill"].env == {"A": "1"}
    assert spec.by_name()["decode"].args == {"mem_fraction_static": 0.82, "enable-dp": True}
    assert (spec.benchmark.type, spec.benchmark.concurrencies, spec.backend.type) == (
        "sa-bench", (1024, 2048, 4096), "slurm",
    )  # fmt: skip


def test_the_second_version() -> None:
    recipe = one(SECOND, backend="local")
    spec = recipe.loaded.spec
    assert spec.engine_of("decode").speedup_ratio == 10
    assert spec.by_name()["decode"].extra_args == ("--x", "y z")
    assert [service.name for service in spec.services] == ["mine"]
    assert (spec.dynamo.request_plane, spec.dynamo.version, spec.backend.type) == ("tcp", "1.6.0", "local")
    assert recipe.notes == ("dynamo.request_plane is http, which Dynamo has no more: tcp is used",)


def test_the_same_word_means_another_frontend_in_each_version() -> None:
    assert one(FIRST + "frontend: {type: sglang}\n").loaded.spec.frontend.type == "sglang-router"
    with pytest.raises(InputError, match=r"`frontend\.type` must be one of dynamo, .*, not sglang"):
        one(SECOND.replace("{type: dynamo}", "{type: sglang}"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("enable_multiple_frontends: true, num_additional_frontends: 3", 4),
        ("enable_multiple_frontends: false, num_additional_frontends: 3", 1),
        ("enable_multiple_frontends: true", 1),
    ],
)
def test_frontends_of_the_first_version(change: str, expected: int) -> None:
    assert one(f"{FIRST}frontend: {{{change}}}\n").loaded.spec.frontend.replicas == expected


@pytest.mark.parametrize(
    ("added", "version"),
    [
        ("", "0.8.0"),
        ("dynamo: {request_plane: nats}", "0.8.0"),
        ("dynamo: {version: 1.1.0}", "1.1.0"),
        ("dynamo: {top_of_tree: true}", None),
        ("dynamo: {hash: abc}", None),
    ],
)
def test_the_dynamo_that_the_first_version_means(added: str, version: str | None) -> None:
    assert one(f"{FIRST}{added}\n").loaded.spec.dynamo.version == version


def test_the_payload_of_nats_is_that_of_a_service() -> None:
    (nats,) = one(FIRST + "infra: {nats_max_payload_mb: 4}\n").loaded.spec.services
    assert (nats.name, nats.type, nats.start, nats.options) == ("nats", "nats", "infra", {"max_payload_mb": 4})


def test_no_nodes_for_decode_are_those_of_prefill() -> None:
    assert one(FIRST, "resources.decode_nodes=0").loaded.spec.by_name()["decode"].nodes == "colocate"


def test_flags_of_a_role_without_nodes_are_no_role() -> None:
    text = FIRST.replace("prefill_nodes: 1\n  decode_nodes: 12\n  prefill_workers: 1\n  decode_workers: 1",
                         "agg_nodes: 2\n  agg_workers: 1")  # fmt: skip
    assert list(one(text, unset=("backend.prefill_environment",)).loaded.spec.by_name()) == ["agg"]


def test_no_connector_is_not_the_default_one() -> None:
    text = FIRST.replace(
        "  prefill_environment: {A: 1}\n  sglang_config", "  type: vllm\n  connector: null\n  vllm_config"
    )
    recipe = one(text)
    assert recipe.loaded.spec.engine_of("decode").connector == "none"
    assert recipe.loaded.origin("engine.connector").where == "r.yaml:19:3"


def test_values_keep_their_lines_and_flags_win() -> None:
    loaded = one(FIRST, "benchmark.isl=7", "resources.decode_nodes=3").loaded
    assert loaded.origin("roles.prefill.args.mem_fraction_static").where == "r.yaml:20:64"
    assert loaded.origin("roles.decode.nodes").text == "--set resources.decode_nodes"
    assert (loaded.spec.benchmark.isl, loaded.spec.by_name()["decode"].nodes) == (7, 3)


@pytest.mark.parametrize("layout", CLUSTERS)
def test_the_cluster_file_is_below_every_recipe(layout: str) -> None:
    spec = one(
        FIRST.replace('  container: "latest"\n', ""), unset=("slurm.account",), other=CLUSTERS[layout]
    ).loaded.spec
    assert spec.backend.type == "slurm"
    assert (spec.backend.account, spec.backend.partition, spec.backend.network_interface) == ("a", "batch", "ib0")
    assert (spec.model.path, spec.model.name, spec.container, spec.gpus_per_node) == ("/models/r1", "r1", "/c.sqsh", 4)


def test_slurm_of_the_cluster_file_is_not_for_this_machine() -> None:
    recipe = one(FIRST, unset=("slurm",), backend="local", other=CLUSTERS["flat"])
    assert recipe.loaded.spec.backend.type == "local"


def test_our_own_document() -> None:
    text = "kind: deployment\nmodel: {path: hf:a/b}\nengine: mocker\nroles: {agg: {workers: 2}}\n"
    spec = one(text, "roles.agg.workers=3").loaded.spec
    assert (spec.model.name, spec.by_name()["agg"].workers, spec.backend.type) == ("b", 3, "local")


@pytest.mark.parametrize(
    ("old", "new", "where", "message"),
    [
        ("prefill_nodes", "prefil_nodes", "r.yaml:8:3", "unknown key 'prefil_nodes' in `resources`"),
        ("decode_nodes: 12", "decode_nodes: many", "r.yaml:9:17", "`resources.decode_nodes` must be"),
        ("prefill_workers: 1", "prefill_workers: no", "r.yaml:10:20",
         "`resources.prefill_workers` must be a whole number, not no"),
        ('"sa-bench"', "gsm8k-bench", "r.yaml:23:9",
         "`benchmark.type` must be one of sa-bench, sglang-bench, gsm8k, mmlu, gpqa, lm-eval, custom, manual, not"),
        ('"sa-bench"', "longbenchv2", "r.yaml:23:9", "`benchmark.type` is 'longbenchv2', which cannot be run yet"),
        ('"sa-bench"', "lm-eval", "r.yaml:23:3", "`benchmark.tasks` is required by lm-eval, and for it alone"),
        ("sglang_config", "vllm_config", "r.yaml:19:3",
         "`backend.vllm_config` has flags of vllm, and the engine is sglang"),
        ("  osl: 1024\n", "", "r.yaml:23:3", "`benchmark.osl` is required by sa-bench"),
        ("backend:\n", "backend:\n  mooncake_kv_store: {}\n", "r.yaml:18:3",
         "`backend.mooncake_kv_store` cannot be used: a Mooncake store cannot be started yet"),
        ('name: "gb', 'schema: 3\nname: "gb', "r.yaml:1:9", "`schema` must be 1 or 2, not '3'"),
        ("slurm:\n", "slurm: 3\nold:\n", "r.yaml:13:1", "`slurm` must be a mapping"),
        ("backend:\n", "extra_mount: [/a]\nbackend:\n", "r.yaml:17:15", "`extra_mount` has '/a', which is not a mount"),
        ("backend:\n", "extra_mount: /a\nbackend:\n", "r.yaml:17:1", "`extra_mount` has '/a', which is not a mount"),
        ("[1024, 2048, 4096]", '"4xx8"', "r.yaml:26:18", "`benchmark.concurrencies` has a gap: '4xx8'"),
        ('model:\n  path: "r1"\n', "identity:\n", "r.yaml:1:1", "`model` is required"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_where_it_stands(old: str, new: str, where: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        one(FIRST.replace(old, new, 1))
    assert error.value.where == where
    assert message in error.value.message


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("default_acount: a\n", "srtslurm.yaml:1:1", "unknown key 'default_acount'"),
        ("cluster: {acount: a}\n", "srtslurm.yaml:1:11", "unknown key 'acount' in `cluster`"),
        ("model_paths: {r1: [a]}\n", "srtslurm.yaml:1:15", "`model_paths.r1` must be a path"),
        ("containers: a\n", "srtslurm.yaml:1:1", "`containers` must be a mapping of names to paths"),
        (
            "default_sbatch_directives: {mem: 1, output: /x}\n",
            "srtslurm.yaml:1:37",
            "`default_sbatch_directives.output` cannot be said in a cluster file: it chooses where jobs read or write",
        ),
        ("default_sbatch_directives: {--chd: /x}\n", "srtslurm.yaml:1:29", "cannot be said in a cluster file"),
        ("default_sbatch_directives: {export_file: /x}\n", "srtslurm.yaml:1:29", "cannot be said in a cluster file"),
    ],
)
def test_no_key_of_a_cluster_file_is_dropped(text: str, where: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        cluster.of_document(parse(text, "srtslurm.yaml"))
    assert error.value.where == where
    assert message in error.value.message


def test_a_cluster_file_that_somebody_else_may_have_written(tmp_path: Path, common: Path, stranger: Stranger) -> None:
    (tmp_path / "cluster.yaml").write_text("")
    file, here = common / "srtslurm.yaml", common / "a"
    assert stranger.does(lambda: file.write_text("default_account: theirs\n"))
    assert stranger.does(here.mkdir)
    stranger.see_as_foreign()
    found, (note,) = cluster.find(common, tmp_path)
    assert found == tmp_path / "cluster.yaml"
    assert note.startswith(
        f"cluster file {file} is passed over: {file} belongs to {user_name(stranger.uid)} and not to"
    )
    assert note.endswith("; if you trust it, say --cluster FILE")
    if stranger.is_real:
        (here / "srtslurm.yaml").write_text("")
        (here / "srtslurm.yaml").chmod(0o644)
        found, notes = cluster.find(here, tmp_path)
        assert found == tmp_path / "cluster.yaml"
        assert f"passed over: {here}, above it, belongs to {user_name(stranger.uid)}; if you trust it" in notes[0]


def test_a_cluster_file_that_is_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "srtslurm.yaml"
    file.write_text(f"default_account: mine\nsrtctl_root: {tmp_path}\n")
    file.chmod(0o666)
    found, (note,) = cluster.find(tmp_path / "a" / "b", tmp_path)
    assert (found, "can be written by others" in note) == (None, True)
    file.chmod(0o600)
    assert cluster.find(tmp_path / "a" / "b", tmp_path) == (file, ())
    assert cluster.read(file).notes == (f"cluster file {file}",)
    assert "mounts" not in cluster.read(file).layer.data, "there is nothing to see"
    (tmp_path / "configs").mkdir()
    read = cluster.read(file)
    assert read.layer.data["mounts"] == {f"{tmp_path}/configs": "/configs"}
    assert read.layer.values["mounts", f"{tmp_path}/configs"].text == f"{file}:2"


def test_where_the_container_has_the_model_is_what_the_launcher_says() -> None:
    for flag, value in (("model-path", "/model/"), ("model_path", "/model"), ("--model", "/model/")):
        text = SECOND.replace("args: {block_size: 16}", f"args: {{block_size: 16, {flag}: {value}}}")
        assert one(text).loaded.spec.by_name()["prefill"].args == {"block_size": 16}
    kept = one(SECOND.replace("args: {block_size: 16}", "args: {model-path: /model/other}")).loaded.spec
    assert kept.by_name()["prefill"].args == {"model-path": "/model/other"}


def test_profilers_of_engines_are_known_and_not_used() -> None:
    text = FIRST + "profiling: {type: nsys, delay_secs: 1, prefill: {start_step: 1, stop_step: 2}}\n"
    assert one(text).notes == ("r.yaml:28: `profiling` is not used: profilers of engines cannot be started yet",)


def test_what_is_taken_out_must_be_there() -> None:
    with pytest.raises(InputError, match=r"--unset slurm\.qos: r\.yaml does not say 'slurm\.qos'"):
        one(FIRST, unset=("slurm.qos",))


@pytest.mark.parametrize("version", [1, 2])
def test_every_word_leads_to_a_field_or_says_why_not(version: int) -> None:
    from remuda.specs.deployment import DeploymentSpec
    from remuda.specs.reading.fields import walk

    known = {at for at, _, _ in walk(DeploymentSpec)}
    for word in words_of(version):
        assert bool(word.to) == (word.fate is Fate.USED), word
        assert word.to or word.why, word
        if word.to and word.path[0] != "environment":
            assert ".".join(word.to) in known, word
    paths = [word.path for word in words_of(version)]
    assert len(paths) == len(set(paths))


def test_a_note_for_each_key_that_is_not_used() -> None:
    recipe = one(FIRST + "telemetry: {x: 1}\ninfra: {etcd_nats_dedicated_node: true}\n")
    assert [re.sub(r" is not used.*", "", note) for note in recipe.notes] == [
        "r.yaml:28: `telemetry`", "r.yaml:29: `infra.etcd_nats_dedicated_node`",
    ]  # fmt: skip


def test_file_and_selector(tmp_path: Path) -> None:
    odd = tmp_path / "a:b.yaml"
    odd.write_text("")
    assert split_target(str(odd)) == (odd, "")
    assert split_target("r.yaml:tp[0]") == (Path("r.yaml"), "tp[0]")
    assert split_target("r.yaml") == (Path("r.yaml"), "")


def test_keys_are_named_as_the_user_wrote_them() -> None:
    read = normal.Normal(layer=one(FIRST).loaded.resolved.layers[0], theirs={("roles", "prefill"): ("resources", "p")})
    from remuda.specs.reading.document import Problem

    assert read.in_their_words(Problem("", "`roles.prefill.nodes` is wrong")).message == "`resources.p.nodes` is wrong"
