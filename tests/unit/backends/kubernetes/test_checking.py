"""Which field a server speaks of, and that the documentation grants what is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.backends.kubernetes.checking import RIGHTS, field_of
from remuda.specs.reading.document import parse

SAID = {
    'Job.batch "x" is invalid: spec.template.spec.containers[0].image: Required value': "image",
    'Job.batch "x" is invalid: [spec.template.spec.tolerations[0].effect: Unsupported value: "No", '
    "spec.template.spec.containers[0].image: Required value]": "tolerations",
    'spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "x"': "gpus",
    'jobs.batch is forbidden: error looking up service account ml/x: serviceaccount "x" not found': "service_account",
    'namespaces "nowhere" not found': "namespace",
    'jobs.batch "x" is forbidden: exceeded quota: few, requested: count/jobs.batch=1': "",
}


@pytest.mark.parametrize("said", SAID)
def test_the_field_that_comes_first_is_named(said: str) -> None:
    assert field_of(said) == SAID[said]


def test_the_documented_role_grants_what_is_done() -> None:
    page = (Path(__file__).parents[4] / "docs/kubernetes.md").read_text()
    role = parse(page.split("```yaml\n")[1].split("```")[0], "role").data
    granted = {kind: (*rule["verbs"],) for rule in role["rules"] for kind in rule["resources"]}
    assert granted == RIGHTS
