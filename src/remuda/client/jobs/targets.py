"""Where a job's requests go: a swarm by name, or any OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remuda.base.endpoint import key_meant_for
from remuda.base.errors import InputError
from remuda.base.ids import api_path
from remuda.base.secrets import SecretRef
from remuda.base.settings import variable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True)
class Target:
    """An endpoint that answers."""

    endpoint: str
    model: str
    api_key_env: str
    api_key_file: str
    swarm: str = ""
    slots: int | None = None
    """See `JobRequest.slots`."""
    backend: str = ""
    """Of the swarm; empty for other endpoints."""
    endpoint_file: str = ""
    """`endpoint.json` of the swarm."""

    @property
    def swarm_dir(self) -> str:
        """Run directory of the swarm; empty for other endpoints."""
        return self.endpoint_file.rpartition("/")[0]


def of_endpoint(url: str, model: str, key_env: str) -> Target:
    """Any server, with the key that the user named, or one that is meant for it.

    Raises:
        InputError: the URL is none, or the variable that was named is not set.
    """
    if not url.startswith(("http://", "https://")):
        raise InputError(f"{url!r} is not a URL", where="--endpoint", hint="write http://host:port")
    key, value = (key_env, variable(key_env, named=True)[0]) if key_env else key_meant_for(url)
    if key_env and not value:
        raise InputError(f"environment variable {key_env} is not set", where="--api-key-env")
    if key:
        # It may come from a `.env` file; the job reads it from the environment.
        os.environ[key] = value
    return Target(url.rstrip("/").removesuffix("/v1"), model, key, "")


def of_swarm(name: str, model: str, key_env: str, say: Callable[[str], None]) -> Target:
    """A swarm; waits until it is up.

    Raises:
        NotFound: there is none of that name.
        InputError: the workload has no endpoint.
        RemudaError: it failed, or does not come up.
    """
    # Planning is what costs the time of a start, and an endpoint that is no swarm needs none of it.
    from remuda.batch.address import ENDPOINT_FILE
    from remuda.client import swarms
    from remuda.client.http import connect

    client = connect()
    view = client.get(api_path(name))
    if not view["endpoint"] and view["kind"] != "swarm":
        raise InputError(f"{name!r} is a {view['kind']}, which has no endpoint", where="--name")
    if view["phase"] not in swarms.UP:
        say(f"{name} is {view['phase']}; waiting until it answers")
        view = deque(swarms.wait_up(name, 600.0, client), maxlen=1).pop()
    key_file = "" if key_env else view["api_key_file"]
    return Target(
        view["endpoint"], model or view["model"], key_env, key_file, name, _slots(view, key_env, key_file),
        view["backend"], f"{view['run_dir']}/{ENDPOINT_FILE}",
    )  # fmt: skip


def _slots(view: Mapping[str, Any], key_env: str, key_file: str) -> int:
    from concurrent.futures import ThreadPoolExecutor

    from remuda.batch.endpoint import slots_of
    from remuda.plan.model import Role

    urls = [task["url"] for task in view["tasks"] if Role(task["role"]).answers and task["url"]]
    key = SecretRef(env=key_env, file=key_file).read() if key_env or key_file else ""
    # The caller may have an event loop of its own.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(slots_of(urls, key, view["wanted"]))).result()
