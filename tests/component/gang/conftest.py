"""Copies as processes, and the stores between them: a folder, and an S3 server on this machine."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
LIMIT_S = 120
"""For a process on a machine that does much else; none needs more than a few seconds."""


@dataclass(frozen=True)
class Place:
    """Where a gang meets."""

    url: str
    env: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, script: str, *arguments: object) -> subprocess.Popen[str]:
        """One copy."""
        copy = subprocess.Popen(
            [sys.executable, str(HERE / script), self.url, *map(str, arguments)],
            env={**os.environ, **self.env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(copy)
        return copy

    def end(self) -> None:
        """Kill what a failed test left, so that no later test is asked for it."""
        for copy in self.started:
            copy.kill()
            copy.communicate()


def said(process: subprocess.Popen[str], expected: int = 0) -> list[dict[str, Any]]:
    """What a copy printed, once it has ended."""
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == expected, err
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(scope="session")
def server() -> Iterator[dict[str, str]]:
    """moto's S3 on loopback; gives the environment of those who use it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield {
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ALLOW_HTTP": "true",
    }  # fmt: skip
    moto.stop()


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Each kind of store, empty."""
    if request.param == "file":
        at = Place(f"file://{tmp_path}/store", {})
        yield at
        at.end()
        return
    import boto3

    env = request.getfixturevalue("server")
    name = f"gang-{abs(hash(str(tmp_path)))}"
    client = boto3.client(
        "s3", endpoint_url=env["AWS_ENDPOINT_URL"], region_name="us-east-1",
        aws_access_key_id="test", aws_secret_access_key="test",
    )  # fmt: skip
    client.create_bucket(Bucket=name)
    client.close()
    at = Place(f"s3://{name}/some/folder", env)
    yield at
    at.end()
