"""What a document says of a swarm's lifetime, as groups."""

from __future__ import annotations

import pytest

from remuda.base.errors import InputError
from remuda.plan.context import Context
from remuda.plan.derive import derive
from remuda.plan.lasting import MOST_SLOTS
from remuda.plan.model import Succession
from remuda.plan.swarm import plan_swarm
from remuda.specs.swarm import SwarmSpec
from remuda.supervise.groups.handover import SUCCESSOR

HOUR = 3600.0
SLURM = {"type": "slurm", "partition": "p", "account": "a", "qos": "q", "time_limit": "36:00:00",
         "endpoint": {"wall_time": "4:00:00"}}  # fmt: skip
FACTS = Context(cwd="/here")


def successions(**values: object) -> dict[str, Succession | None]:
    document = {"model": "m", "gpus_per_replica": 1, "backend": SLURM, "replicas": 2, **values}
    spec = derive(SwarmSpec.model_validate(document), FACTS).spec
    planned = plan_swarm(spec, FACTS, name="w")
    assert planned.lifetime_s == spec.lifetime
    assert planned.idle_timeout_s == spec.idle_timeout
    return {group.name: group.succession for group in planned.groups}


@pytest.mark.parametrize(
    ("values", "replica", "router"),
    [
        pytest.param({}, None, None, id="no lifetime"),
        pytest.param({"lifetime": "7d"}, (2 * HOUR, 600), (HOUR, 600), id="a quarter of each limit, at most 2h"),
        pytest.param({"lifetime": "7d", "handover": "30m", "drain": "1m"}, (1800, 60), (1800, 60), id="as it is said"),
        pytest.param(
            {"lifetime": "7d", "backend": "local", "gpus_per_replica": 0},
            None,
            None,
            id="no time limit, no succession",
        ),
        pytest.param({"idle_timeout": "1h"}, None, None, id="idle only"),
    ],
)
def test_leads(
    values: dict[str, object], replica: tuple[float, float] | None, router: tuple[float, float] | None
) -> None:
    planned = successions(**values)
    for name, expected in (("replica", replica), ("router", router)):
        follows = "handover" not in values
        wanted = Succession(lead_s=expected[0], drain_s=expected[1], follows_queue=follows) if expected else None
        assert planned[name] == wanted, name


@pytest.mark.parametrize(
    ("values", "where", "sentence"),
    [
        ({"lifetime": "7d", "handover": "36h"}, "handover", "`handover` is 1d 12h"),
        ({"lifetime": "7d", "handover": "4h"}, "handover", "the time limit of the router is 4h"),
        (
            {"lifetime": "7d", "replicas": 501},
            "replicas",
            "replica has 501 tasks, and with a `lifetime` 500 at most can have successors",
        ),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, object], where: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        successions(**values)
    assert caught.value.where == where
    assert sentence in str(caught.value)


def test_plan_and_supervisor_mean_the_same_number() -> None:
    assert MOST_SLOTS == SUCCESSOR
