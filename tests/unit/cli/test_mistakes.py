"""What people type wrong, and the exact sentence that answers: `tests/cases/mistakes.txt`.

An entry is `$ WORDS`, then `[CODE]` with what stands on standard error. Nothing is started, and no host.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from remuda.cli import main
from remuda.client import http

FILE = Path(__file__).parents[2] / "cases/mistakes.txt"
ENTRIES = re.findall(r"^\$ ([^\n]*)\n\[(\d+)\] (.*?)(?=^\$ |\Z)", FILE.read_text(), re.MULTILINE | re.DOTALL)
FILES = {
    "train.sh": "#!/bin/sh\ntrue\n", "plain.txt": "hello\n", "empty.sh": "", "noline.sh": "echo hi\n",
    "swarm.yaml": "name: chat\nmodel: m\nengine: command\ncommand: [server]\nrouter: none\n",
    "broken.yaml": "model: [x\n", "list.yaml": "- a\n", "empty.yaml": "", "typo.yaml": "model: m\nreplica: 2\n",
    "kind.yaml": "kind: swam\nmodel: m\n", "neg.yaml": "model: m\nreplicas: -1\n",
    "twice.yaml": "model: m\nmodel: n\n", "tab.yaml": "model: m\n\treplicas: 2\n",
    "gang.yaml": "kind: gang\nranks: 0\ncommand: [true]\n",
    "recipe.yaml": "name: r\nmodel: {path: /m}\nresources: {}\n", "arr.sh": "#!/bin/sh\n#SBATCH --array=5-1\ntrue\n",
    "rem.sh": "#!/bin/sh\n#REMUDA --gpu 4\ntrue\n", "mem.sh": "#!/bin/sh\n#SBATCH --mem=lots\ntrue\n",
    "in.jsonl": '{"prompt": "a"}\n',
}  # fmt: skip


@pytest.mark.parametrize(("words", "code", "said"), ENTRIES, ids=[words for words, _, _ in ENTRIES])
def test_the_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    code: str,
    said: str,
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "dir").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(http, "start_host", lambda *_: pytest.fail("a host was started"))
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((200, 24)))
    found = main(shlex.split(words))
    told = re.sub(r"job out-\w+", "job out-ID", capsys.readouterr().err.replace(str(tmp_path), "HERE"))
    assert (str(found), told.rstrip()) == (code, said.rstrip())


def test_there_are_seventy() -> None:
    assert len({words for words, _, _ in ENTRIES}) >= 70
