"""What a document for Slurm says of nginx and of the router's job."""

from __future__ import annotations

import pytest
from tests.unit.specs.test_examples import read

from remuda.plan.context import Context
from remuda.plan.derive import derive
from remuda.plan.placing.cluster import of_nginx, router_resources, slurm_notes
from remuda.specs.backend import SlurmBackend

HEAD = "model: m\nbackend: {type: slurm, partition: p, account: a, qos: q, endpoint: {%s}}\n"


@pytest.mark.parametrize(
    ("endpoint", "router", "expected"),
    [
        ("", "nginx", (0.0, ())),
        ("nginx_timeout: 5m", "nginx", (300.0, ())),
        ("nginx_timeout: 60", "nginx", (60.0, ())),
        ("nginx_image: /a.sif", "nginx", (0.0, ("--image", "/a.sif"))),
        ("nginx_image: /a.sif, nginx_timeout: 5m", "smg", (0.0, ())),
    ],
)
def test_what_nginx_is_told(endpoint: str, router: str, expected: tuple[float, tuple[str, ...]]) -> None:
    assert of_nginx(read(HEAD % endpoint + f"router: {router}\n")) == expected


@pytest.mark.parametrize(("endpoint", "expected"), [("", 0), ("threads_per_core: 1", 1), ("threads_per_core: 2", 2)])
def test_threads_of_a_core_are_asked_for_when_they_are_given(endpoint: str, expected: int) -> None:
    backend = read(HEAD % endpoint).backend
    assert isinstance(backend, SlurmBackend)
    assert router_resources(backend).threads_per_core == expected


@pytest.mark.parametrize(("router", "expected"), [("nginx", ()), ("smg", ("backend.endpoint.nginx_image",))])
def test_what_has_no_effect_is_told(router: str, expected: tuple[str, ...]) -> None:
    spec = read(HEAD % "nginx_image: /a.sif" + f"router: {router}\n")
    said = " ".join(slurm_notes(derive(spec, Context()).spec))
    assert all(name in said for name in expected)
    assert ("nginx_image" in said) is bool(expected)
