"""A worker that lists itself and says that it is well. Requests never reach it."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path

from remuda.testing import engine


def main() -> None:
    """Serve health until SIGTERM."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model-name", required=True)
    parser.add_argument("--disaggregation-mode", choices=["prefill", "decode"])
    known, _ = parser.parse_known_args()
    component = "prefill" if known.disaggregation_mode == "prefill" else "backend"
    listed = Path(os.environ["DYN_FILE_KV"], f"{component}-{os.getpid()}.json")
    listed.write_text(json.dumps({"model": known.model_name, "component": component, "pid": os.getpid()}))
    place = ["--host", os.environ["DYN_SYSTEM_HOST"], "--port", os.environ["DYN_SYSTEM_PORT"]]
    asyncio.run(engine.run(engine.parser().parse_args(place)))


if __name__ == "__main__":
    main()
