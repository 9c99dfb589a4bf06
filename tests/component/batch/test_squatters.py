"""Another user of the machine has the port of a swarm: a job of that swarm tells them nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.batch.pipeline.answer import Transient
from remuda.batch.prepare import open_connection
from remuda.batch.request import JobRequest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.strangers import Squatter

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize("lets_go", [False, True])
async def test_a_swarms_job_tells_no_key_and_no_prompt(
    squatter: Squatter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lets_go: bool
) -> None:
    monkeypatch.setenv("SWARM_KEY", "s3cr3t")
    squatter.takes(lets_go=lets_go, answer=ANSWER)
    swarm = tmp_path / "swarm"
    swarm.mkdir()
    request = JobRequest(
        f"http://127.0.0.1:{squatter.port}", "m", "in.jsonl", "out.jsonl", swarm_dir=str(swarm), api_key_env="SWARM_KEY"
    )
    connection = open_connection(request)
    assert connection is not None
    with pytest.raises(Transient, match="a process of another user answers there") as refused:
        await connection.transport.post("/v1/chat/completions", b'{"a": "prompt"}')
    assert not refused.value.sent
    await connection.transport.close()
    squatter.until("served")
    assert squatter.heard == b""


async def test_a_server_that_was_named_may_be_anybodys(squatter: Squatter) -> None:
    squatter.takes(answer=ANSWER)
    connection = open_connection(JobRequest(f"http://127.0.0.1:{squatter.port}", "m", "in.jsonl", "out.jsonl"))
    assert connection is not None
    assert (await connection.transport.post("/v1/chat/completions", b"{}")).status == 200
    await connection.transport.close()
