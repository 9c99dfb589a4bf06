"""What is wrong with the arguments of a program is said in its own name, and no key is left in its environment."""

from __future__ import annotations

import os

import pytest

from remuda.serving import llamacpp_server, nginx_launcher, smg_launcher

PROGRAMS = {"llamacpp": llamacpp_server, "nginx": nginx_launcher, "smg": smg_launcher}


@pytest.mark.parametrize("word", PROGRAMS)
def test_a_key_that_is_empty_and_a_flag_that_nobody_knows(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOOD", "k")
    monkeypatch.setenv("BAD", "")
    parser = PROGRAMS[word].parser()
    assert (parser.take("GOOD"), parser.take(""), "GOOD" in os.environ) == ("k", "", False)
    with pytest.raises(SystemExit, match=r"^2$"):
        parser.take("BAD")
    with pytest.raises(SystemExit, match=r"^2$"):
        parser.parse_args(["--port", "many"])
    port = "unrecognized arguments: --port" if word == "smg" else "argument --port: invalid int value: 'many'"
    said = [f"python -m remuda.enter {word}: {what}" for what in ("$BAD is empty", port)]
    assert capsys.readouterr().err.splitlines() == said
