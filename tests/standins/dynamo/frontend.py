"""The frontend: lists the workers that list themselves, and answers in their place."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
from pathlib import Path
from typing import Any

from tests.fakes import engine


class Frontend(engine.Engine):
    """An engine that is well without workers, and has a model by them alone."""

    async def _answer(self, request: engine.Request, writer: asyncio.StreamWriter) -> None:
        workers = listed()
        components = {worker["component"] for worker in workers}
        if request.path == "/health":
            instances = [{"component": worker["component"], "endpoint": "generate"} for worker in workers]
            await engine.send(writer, 200, {"status": "healthy", "instances": instances})
        elif request.path == "/v1/models":
            models = sorted({worker["model"] for worker in workers if worker["component"] == "backend"})
            await engine.send(writer, 200, {"object": "list", "data": [engine.model_card(name) for name in models]})
        elif request.method == "POST" and components != {"prefill", "backend"}:
            await engine.send(writer, 503, engine.error("not ready to serve requests yet", "unavailable"))
        else:
            with Path(os.environ["DYN_FILE_KV"], "asked").open("a") as asked:
                asked.write("x")
            await super()._answer(request, writer)


def listed() -> list[dict[str, Any]]:
    """Workers that live."""
    return [json.loads(path.read_text()) for path in Path(os.environ["DYN_FILE_KV"]).glob("*.json") if is_held(path)]


def is_held(path: Path) -> bool:
    """Whether the process that listed itself lives, on whichever machine."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--http-host", required=True)
    parser.add_argument("--http-port", required=True)
    known, _ = parser.parse_known_args()
    engine.Engine = Frontend  # type: ignore[misc]
    flags = ["--host", known.http_host, "--port", known.http_port, "--token-s", "0.002"]
    asyncio.run(engine.run(engine.parser().parse_args(flags)))


if __name__ == "__main__":
    main()
