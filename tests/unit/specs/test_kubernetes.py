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


def test_flags_win() -> None:
    assert read(NESTED, image="reg/t:2").spec.image == "reg/t:2"
    assert read(NESTED, backend="slurm").spec.backend == "slurm"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("queue: q", "train.yaml:8:3: unknown key 'queue'"),
        ("namespace: A b", "train.yaml:8:14: `namespace` must be a name that Kubernetes takes, not 'A b'"),
        ("service_account: -x", "train.yaml:8:20: `service_account` must be a name that Kubernetes takes, not '-x'"),
        (
            "image_pull_secrets: [a, B]",
            "train.yaml:8:23: `image_pull_secrets` must be a name that Kubernetes takes, not 'B'",
        ),
        ("image: a b", "train.yaml:5:10: `image` must be an image of a registry, not 'a b'"),
    ],
)
def test_what_is_wrong_is_told_where_it_stands(line: str, said: str) -> None:
    text = NESTED.replace("image: reg/t:1", line) if line.startswith("image:") else f"{NESTED}  {line}\n"
    with pytest.raises(InputError) as caught:
        read(text)
    assert str(caught.value).startswith(said)
