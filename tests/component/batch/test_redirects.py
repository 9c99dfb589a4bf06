"""An endpoint that points elsewhere: followed where that is safe, else one sentence; the key goes to nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.fakes.stub_process import StubProcess

from remuda.base.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.batch.request import Summary

    Run = Callable[..., Summary]
    Rows = Callable[[], list[dict[str, Any]]]
    Prompts = Callable[..., Path]

MOVED = "/moved/v1/chat/completions"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("whole", [False, True])
def test_a_redirect_that_keeps_the_question_is_followed_on_the_same_server(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, status: int, whole: bool
) -> None:
    stub.set(status=status, location=stub.url + MOVED if whole else MOVED)
    assert run(stub.url, prompts(["a", "b", "c"]), api_key_env="MY_KEY").failed == 0
    assert [row["result"] for row in rows()] == ["echo: a", "echo: b", "echo: c"]
    assert stub.stats()["prompts"] == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_server_ends_the_job_and_tells_it_nothing(
    stub: StubProcess, prompts: Prompts, run: Run, status: int
) -> None:
    with StubProcess() as other:
        stub.set(status=status, location=other.url + MOVED)
        with pytest.raises(Rejected, match=f"redirects.*HTTP {status}.*{other.url}{MOVED}") as caught:
            run(stub.url, prompts(["a"] * 50), api_key_env="MY_KEY")
        assert "--endpoint" in caught.value.hint
        assert (other.stats()["requests"], other.stats()["keys"]) == (0, 0)


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_that_would_lose_the_question_ends_the_job(
    stub: StubProcess, prompts: Prompts, run: Run, status: int
) -> None:
    stub.set(status=status, location=MOVED)
    with pytest.raises(Rejected, match=rf"redirects.*HTTP {status}.*{stub.url}{MOVED}"):
        run(stub.url, prompts(["a"] * 50))
    assert stub.stats()["requests"] == 0


def test_a_redirect_in_the_middle_of_a_job_ends_it_with_what_is_done(
    stub: StubProcess, prompts: Prompts, run: Run
) -> None:
    source = prompts(["a", "b", "c"])
    assert run(stub.url, source, limit=1).done == 1
    stub.set(status=302, location="https://login.example/?next=chat")
    with pytest.raises(Rejected, match=r"https://login\.example/"):
        run(stub.url, source)
    stub.set(status=200, location="")
    assert run(stub.url, source).skipped == 1


def test_a_circle_of_redirects_ends_the_job(stub: StubProcess, prompts: Prompts, run: Run) -> None:
    stub.set(status=307, location="/v1/chat/completions")
    with pytest.raises(Rejected, match="redirects"):
        run(stub.url, prompts(["a"] * 50))


@pytest.mark.parametrize("location", ["", "http://[::1", "//", "ftp://x/y", "http://user:pass@127.0.0.1:9/x", "\\"])
def test_a_location_of_any_shape(stub: StubProcess, prompts: Prompts, run: Run, location: str) -> None:
    stub.set(status=308, location=location or " ")
    with pytest.raises(Rejected, match="redirects") as caught:
        run(stub.url, prompts(["a"]))
    assert "pass" not in caught.value.message


def test_the_question_for_the_model_names_the_redirect(stub: StubProcess, prompts: Prompts, run: Run) -> None:
    stub.set(status=302, location="https://login.example/")
    with pytest.raises(Rejected, match=r"https://login\.example/"):
        run(stub.url, prompts(["a"]), model="")
