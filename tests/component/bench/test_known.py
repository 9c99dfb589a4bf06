"""What was measured of a swarm is known when the same is brought up again, wherever and under whatever name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.component.bench.test_command import SMALL

if TYPE_CHECKING:
    from tests.conftest import Home


def test_a_config_is_known_again_and_another_one_is_not(home: Home) -> None:
    file = str(home.swarm(replicas=1, router="none", engine_args=["--token-s", "0.002"]))

    def measured(name: str, *settings: str) -> dict[str, Any]:
        home.run("up", file, "-n", name, *settings)
        done = home.run("bench", "--name", name, "-C", "1", *SMALL, "--json", check=False)
        found: dict[str, Any] = json.loads(done.stdout)[0]
        assert found["verdict"] != "invalid", found["checks"]
        home.run("down", name)
        return found

    first, again = measured("herd"), measured("other", "-s", "log_level=debug")
    assert (first["stored_before"], again["stored_before"], again["name"]) == (False, True, first["name"])
    assert first["config"] == again["config"] != ""
    other = measured("herd", "-s", "env.SEED=1")
    assert (other["stored_before"], other["config"] != first["config"]) == (False, True)
