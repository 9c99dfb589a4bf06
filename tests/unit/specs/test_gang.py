"""Gangs as documents: what is wrong is told in one sentence, with its place and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import InputError
from remuda.specs.gang import GangSpec
from remuda.specs.reading.document import parse
from remuda.specs.reading.load import build

if TYPE_CHECKING:
    from collections.abc import Mapping

HEAD = "kind: gang\nranks: 4\n"
GOOD = f"{HEAD}script: train.py\n"
APART = "ranks on Kubernetes share no files: they need a `rendezvous` in an object store"
OBJECTS = "set it to a URL that begins with s3://, gs:// or az://, or to none where they do not meet"


def load(text: str) -> GangSpec:
    spec = build(parse(text, "gang.yaml")).spec
    assert isinstance(spec, GangSpec)
    return spec


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        pytest.param(
            "kind: gang\nscript: t.py\n", "gang.yaml:1:1: `ranks` is required", "Number of ranks", id="ranks"
        ),
        pytest.param(
            "kind: gang\nranks: 0\nscript: t.py\n", "gang.yaml:2:8: `ranks` must be at least 1, not 0", "", id="none"
        ),
        pytest.param(
            f"{HEAD}", "gang.yaml:1:1: a gang needs one of `script` (a file) and `command` (what would be typed)", "",
            id="nothing to run",
        ),
        pytest.param(
            f"{GOOD}command: python x.py\n",
            "gang.yaml:4:1: a gang needs one of `script` (a file) and `command` (what would be typed)", "", id="both",
        ),
        pytest.param(
            f"{GOOD}mode: rigid\nquorum: 2\n",
            "gang.yaml:5:1: `quorum` lets ranks train on without the others, which no `rigid` gang does",
            "leave one of the two out", id="rigid",
        ),
        pytest.param(
            f"{GOOD}mode: stiff\n", "gang.yaml:4:7: `mode` must be one of elastic, rigid, not stiff", "", id="mode"
        ),
        pytest.param(
            f"{GOOD}backend: slurm\nranks_per_node: 2\n",
            "gang.yaml:5:1: `ranks_per_node` is for ranks that share a job, and those of an `elastic` gang do not",
            "leave it out, or set `mode: rigid`", id="ranks_per_node",
        ),
        pytest.param(
            f"{GOOD}mode: rigid\nassemble: 5m\n",
            "gang.yaml:5:1: `assemble` is for ranks that begin one by one, and those of a `rigid` gang begin together",
            "leave one of the two out", id="assemble",
        ),
        pytest.param(
            f"{GOOD}backend: kubernetes\nmode: rigid\n",
            "gang.yaml:5:1: the ranks of a `rigid` gang begin together, and on Kubernetes they begin one by one",
            "leave `mode` out, or set `backend: slurm`", id="rigid on Kubernetes",
        ),
        pytest.param(
            f"{GOOD}backend: kubernetes\n", f"gang.yaml:4:1: {APART}", OBJECTS, id="no place to meet on Kubernetes",
        ),
        pytest.param(
            f"{GOOD}rendezvous: file:///x\nbackend: kubernetes\n", f"gang.yaml:4:1: {APART}", OBJECTS,
            id="files on Kubernetes",
        ),
        pytest.param(
            f"{GOOD}rendezvous: FILE:///x\nbackend: {{type: kubernetes, image: r/t}}\n", f"gang.yaml:4:1: {APART}",
            OBJECTS, id="files in capitals",
        ),
        pytest.param(
            f"{GOOD}backend: {{type: kubernetes, imago: r/t}}\n", "gang.yaml:4:29: unknown key 'imago'",
            "did you mean 'image'?", id="a field of Kubernetes",
        ),
        pytest.param(
            f"{GOOD}backend: {{type: kube}}\n",
            "gang.yaml:4:17: `backend` must be one of local, slurm, fleet, kubernetes, not kube", "", id="backend",
        ),
        pytest.param(
            f"{GOOD}gpu_type: a100\n", "gang.yaml:4:1: `gpu_type` says which GPUs, but ranks have none",
            "add --gpus 1", id="kind of no GPU",
        ),
        pytest.param(
            f"{GOOD}quorum: 5\n", "gang.yaml:4:1: `quorum` is 5, and there are 4 ranks", "", id="quorum too large"
        ),
        pytest.param(
            f"{GOOD}rendezvous: /shared/x\n",
            "gang.yaml:4:13: `rendezvous` must be the URL of a store, not '/shared/x'",
            "write file:///shared/x", id="a path",
        ),
        pytest.param(
            f"{GOOD}rendezvous: redis://h/0\n",
            "gang.yaml:4:13: `rendezvous` must be the URL of a store, not 'redis://h/0'",
            "it begins with one of file://, s3://, gs://, az://", id="another store",
        ),
        pytest.param(
            f"{GOOD}rendezvous: s3://me:sesame@bucket/x\n", "gang.yaml:4:13: `rendezvous` must not have a secret in it",
            "keys of a store travel by `secret_env`, e.g. AWS_SECRET_ACCESS_KEY", id="a password",
        ),
        pytest.param(
            f"{GOOD}rendezvous: file://here/x\n",
            "gang.yaml:4:13: `rendezvous` must name a folder with its whole path, not 'file://here/x'",
            "write file:///folder", id="a relative folder",
        ),
        pytest.param(
            f"{GOOD}run_id: a/b\n", "gang.yaml:4:9: `run_id` cannot be 'a/b'",
            "use 1 to 128 of A-Z a-z 0-9 . _ - and begin with a letter or digit", id="run_id",
        ),
        pytest.param(
            f"{GOOD}env:\n  REPLICA_RANK: 1\n", "gang.yaml:5:3: `env` has REPLICA_RANK, which is set for each rank", "",
            id="a variable of ranks",
        ),
        pytest.param(
            f"{GOOD}env: {{K: 1}}\nsecret_env: {{K: {{env: K}}}}\n",
            "gang.yaml:5:1: K is in `env` and in `secret_env`", "leave it out of `env`", id="twice",
        ),
        pytest.param(
            f"{GOOD}secret_env:\n  K: sesame\n",
            "gang.yaml:5:6: `secret_env.K` must say where the secret is, not be the secret",
            "write {env: NAME} or {file: PATH}", id="the secret itself",
        ),
        pytest.param(
            f"{GOOD}backoff_base: 60\nbackoff_max: 5\n",
            "gang.yaml:5:1: `backoff_max` is 5 s, less than the 60 s of `backoff_base`", "", id="back-off",
        ),
        pytest.param(
            f"{GOOD}gpus: 1\n", "gang.yaml:4:1: unknown key 'gpus'", "did you mean `resources.gpus`?", id="gpus"
        ),
    ],
)  # fmt: skip
def test_what_is_wrong(text: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        load(text)
    assert str(caught.value).splitlines()[0] == message
    assert caught.value.hint == hint
    assert "sesame" not in f"{caught.value}{caught.value.hint}"


def test_a_document_without_its_kind_is_no_gang() -> None:
    with pytest.raises(InputError) as caught:
        build(parse("script: train.py\nranks: 4\n", "x.yaml"))
    assert str(caught.value).splitlines()[0] == "x.yaml:2:1: unknown key 'ranks'"


@pytest.mark.parametrize("url", ["file:///shared/x", "s3://bucket/a/b", "gs://bucket", "az://container/x"])
def test_stores(url: str) -> None:
    assert load(f"{GOOD}rendezvous: {url}\n").rendezvous == url


def test_defaults() -> None:
    spec = load(GOOD)
    said: Mapping[str, object] = spec.model_dump(exclude_defaults=True)
    assert said == {"ranks": 4, "script": "train.py"}
    assert (spec.mode, spec.backend, spec.resources.gpus, spec.max_retries) == ("elastic", "local", 0, 10)


def test_fields_of_kubernetes_stand_beside_its_name_or_alone() -> None:
    rest = "rendezvous: s3://b/x\nkubeconfig: k\n"
    beside = load(f"{GOOD}{rest}backend: {{type: kubernetes, image: r/t:1, node_selector: {{a: b}}}}\n")
    assert beside == load(f"{GOOD}{rest}backend: kubernetes\nimage: r/t:1\nnode_selector: [a=b]\n")
    assert (beside.backend, beside.image, beside.node_selector) == ("kubernetes", "r/t:1", ("a=b",))
