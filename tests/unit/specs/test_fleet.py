"""Documents that name a fleet: planned for Slurm, in its one partition, with nobody to charge."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.base.errors import InputError
from remuda.specs.reading.document import parse
from remuda.specs.reading.load import Loaded, build

DEFAULTS = "slurm: {partition: a100, account: us, qos: high, modules: [cuda]}\n"
DEPLOYMENT = "kind: deployment\nmodel: {path: m}\nengine: sglang\nroles: {agg: {workers: 1}}\n"


def read(text: str, expect: str = "", defaults: str = DEFAULTS) -> Loaded[Any]:
    return build(parse(text, "d.yaml"), expect=expect, defaults=parse(defaults, "defaults.yaml"),
                 settings={"SBATCH_ACCOUNT": ("ours", "environment SBATCH_ACCOUNT")})  # fmt: skip


@pytest.mark.parametrize("said", ["fleet", "{type: fleet}", "{type: fleet, partition: fleet, account: us}"])
def test_a_swarm(said: str) -> None:
    backend = read(f"model: m\nbackend: {said}\n").spec.backend
    assert (backend.type, backend.partition, backend.account, backend.qos) == ("fleet", "fleet", "", "")
    assert backend.modules == ()


def test_what_a_swarm_says_besides_stays() -> None:
    backend = read("model: m\nbackend: {type: fleet, time_limit: '1:00:00', endpoint: {port: 9100}}\n").spec.backend
    assert (backend.time_limit, backend.endpoint.port) == ("1:00:00", 9100)


@pytest.mark.parametrize(
    "text", ["kind: run\nscript: t.sh\n", "kind: gang\nranks: 2\ncommand: [train]\n"], ids=["run", "gang"]
)
@pytest.mark.parametrize("said", ["backend: fleet", "backend: {type: fleet}", "backend: fleet\npartitions: [fleet]"])
def test_runs_and_gangs(text: str, said: str) -> None:
    spec = read(f"{text}{said}\n").spec
    assert (spec.backend, spec.partitions, spec.account, spec.qos) == ("slurm", ("fleet",), None, None)


def test_a_deployment() -> None:
    backend = read(f"{DEPLOYMENT}backend: fleet\n").spec.backend
    assert (backend.type, backend.partition, backend.account) == ("fleet", "fleet", "")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("model: m\nbackend: {type: fleet, partition: a100}\n", "d.yaml:2:24: "),
        ("kind: run\nscript: t.sh\nbackend: fleet\npartitions: [a100, fleet]\n", "d.yaml:4:1: "),
        (f"{DEPLOYMENT}backend: {{type: fleet, frontend_partition: cpu}}\n", "d.yaml:5:24: "),
    ],
)
def test_another_partition_is_refused_where_it_is_said(text: str, where: str) -> None:
    with pytest.raises(InputError) as told:
        read(text)
    assert str(told.value) == f"{where}all nodes of a fleet are in its one partition, `fleet`"
    assert told.value.hint == "leave it out"
