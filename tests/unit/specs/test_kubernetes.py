"""What a run's document says of Kubernetes: under `backend`, beside it, or by flags, each with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from remuda.base.errors import InputError
from remuda.specs.reading.document import parse
from remuda.specs.reading.load import Loaded, build
from remuda.specs.reading.resolve import Override

if TYPE_CHECKING:
    from remuda.specs.run import RunSpec

NESTED = """\
kind: run
script: train.sh
backend:
  type: kubernetes
  image: reg/t:1
  node_selector: {zone: a, fast: ""}
  tolerations: a=b:NoExecute
"""


def read(text: str, **flags: object) -> Loaded[Any]:
    overrides = [Override(name, value, f"--{name.replace('_', '-')}") for name, value in flags.items()]
    return build(parse(text, "train.yaml"), overrides, expect="run")


def test_fields_under_backend_are_those_of_the_run() -> None:
    loaded = read(NESTED)
    spec = cast("RunSpec", loaded.spec)
    assert (spec.backend, spec.image, spec.tolerations) == ("kubernetes", "reg/t:1", ("a=b:NoExecute",))
    assert spec.node_selector == ("zone=a", "fast=")
    assert loaded.origin("image").where == "train.yaml:5:10"
    assert loaded.origin("backend").where == "train.yaml:4:9"
    flat = NESTED.replace("backend:\n  type: kubernetes", "backend: kubernetes").replace("  ", "")
    assert read(flat).spec == spec


DEFAULTS = """\
run: {mem: 1GB}
kubernetes:
  image: reg/usual:1
  namespace: ml
  queue: gpus
"""


@pytest.mark.parametrize("kind", ["run", "gang\nranks: 2\nrendezvous: s3://b/x"])
def test_the_defaults_file_holds_where_it_runs_on_kubernetes(kind: str) -> None:
    text = NESTED.replace("run", kind, 1)
    loaded = build(parse(text, "t.yaml"), defaults=parse(DEFAULTS, "d.yaml"))
    assert (loaded.spec.image, loaded.spec.namespace, loaded.spec.queue) == ("reg/t:1", "ml", "gpus")  # type: ignore[attr-defined]
    assert loaded.origin("queue").where == "d.yaml:5:10"
    elsewhere = build(parse(f"kind: {kind}\nscript: train.sh\n", "t.yaml"), defaults=parse(DEFAULTS, "d.yaml")).spec
    assert not {"image", "namespace", "queue"} & elsewhere.model_fields_set
    by_default = f"run: {{backend: kubernetes}}\n{DEFAULTS.partition(chr(10))[2]}"
    named = build(parse("kind: run\nscript: train.sh\n", "t.yaml"), defaults=parse(by_default, "d.yaml")).spec
    assert named.model_dump()["image"] == "reg/usual:1"


def test_an_unknown_key_of_the_defaults_file_is_told_where_it_stands() -> None:
    with pytest.raises(InputError) as caught:
        build(parse(NESTED, "t.yaml"), defaults=parse(DEFAULTS.replace("queue", "quee"), "d.yaml"))
    assert str(caught.value) == "d.yaml:5:3: unknown key 'quee' in the defaults"
    assert caught.value.hint == "did you mean 'queue'?"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("{secret: hub}", "must be a Secret and its key, not 'hub'"),
        ("{secret: hub/token, env: A}", "needs either `file`, `env` or `secret`"),
        ("{}", "needs either `file`, `env` or `secret`"),
    ],
)
def test_a_secret_of_the_namespace_is_named_whole(said: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        read(f"{NESTED}secret_env: {{KEY: {said}}}\n")
    assert sentence in str(caught.value)


def test_flags_win() -> None:
    assert read(NESTED, image="reg/t:2").spec.image == "reg/t:2"
    assert read(NESTED, backend="slurm").spec.backend == "slurm"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("zone: q", "train.yaml:8:3: unknown key 'zone'"),
        ("namespace: A b", "train.yaml:8:14: `namespace` must be a name that Kubernetes takes, not 'A b'"),
        ("service_account: -x", "train.yaml:8:20: `service_account` must be a name that Kubernetes takes, not '-x'"),
        (
            "image_pull_secrets: [a, B]",
            "train.yaml:8:23: `image_pull_secrets` must be a name that Kubernetes takes, not 'B'",
        ),
        ("queue: gpu/a", "train.yaml:8:10: `queue` must be the name of a queue, not 'gpu/a'"),
        ("mounts: [data]", "train.yaml:8:11: `mounts` must be CLAIM:/path or CLAIM:/path:ro, not 'data'"),
        ("mounts: [a:/x, b:/x/:ro]", "train.yaml:8:11: `mounts` has /x twice"),
        ("mounts: [a:/x/../remuda/run]", "train.yaml:8:11: `mounts` cannot be at /x/../remuda/run"),
        ("mounts: [a:/]", "train.yaml:8:11: `mounts` cannot be at /"),
        ("run_as_user: 0", "train.yaml:8:16: `run_as_user` must be at least 1, not 0"),
        ("gpu_resource: gpu", "train.yaml:8:17: `gpu_resource` must be a resource of nodes, not 'gpu'"),
        ("security: lax", "train.yaml:8:13: `security` must be `restricted`, not lax"),
        ("image: a b", "train.yaml:5:10: `image` must be an image of a registry, not 'a b'"),
    ],
)
def test_what_is_wrong_is_told_where_it_stands(line: str, said: str) -> None:
    text = NESTED.replace("image: reg/t:1", line) if line.startswith("image:") else f"{NESTED}  {line}\n"
    with pytest.raises(InputError) as caught:
        read(text)
    assert str(caught.value).startswith(said)
