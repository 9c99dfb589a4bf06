"""A worker that lists itself and says that it is well. Requests never reach it."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
from pathlib import Path

from tests.fakes import engine


class Worker(engine.Engine):
    """An engine that counts what the frontend was asked."""

    def metrics(self) -> str:
        """Prometheus text with Dynamo's name."""
        asked = Path(os.environ["DYN_FILE_KV"], "asked")
        count = asked.stat().st_size if asked.exists() else 0
        return f'dynamo_component_requests_total{{dynamo_endpoint="generate"}} {count}\n'


def main() -> None:
    """Serve health until SIGTERM."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model-name", required=True)
    parser.add_argument("--disaggregation-mode", choices=["prefill", "decode"])
    known, _ = parser.parse_known_args()
    component = "prefill" if known.disaggregation_mode == "prefill" else "backend"
    path = Path(os.environ["DYN_FILE_KV"], f"{component}-{os.uname().nodename}-{os.getpid()}.json")
    engine.Engine = Worker  # type: ignore[misc]
    place = ["--host", os.environ["DYN_SYSTEM_HOST"], "--port", os.environ["DYN_SYSTEM_PORT"]]
    with path.open("w") as listed:
        json.dump({"model": known.model_name, "component": component}, listed)
        listed.flush()
        fcntl.flock(listed, fcntl.LOCK_EX)  # as long as it lives
        asyncio.run(engine.run(engine.parser().parse_args(place)))


if __name__ == "__main__":
    main()
