"""A key that a server says back is in nothing that is kept or shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from tests.component.bench.conftest import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Home
    from tests.fakes.truth import Truth

KEY = "sk-live/4f9d0c2b71aa"


def test_the_endpoints_key_is_kept_and_shown_nowhere(home: Home, truth: Callable[..., Truth]) -> None:
    argv = words(truth(echo=1, fail=0.2, after=12).url, "--api-key-env", "KEY")
    done = home.run(*argv, env={"KEY": KEY}, check=False)
    assert done.returncode == 10, done.stderr
    (point,) = json.loads(done.stdout)
    assert "fell over[secret]" in done.stdout
    (folder,) = (home.paths.root / "bench").glob(f"{point['id'][:16]}-*")
    rows = pq.read_table(folder / "requests.parquet").to_pylist()
    assert "[secret]" in "".join(row["text"] for row in rows), "the server says it"
    report = home.root / "report.html"
    said = [done.stdout, done.stderr, (folder / "point.json").read_text(), json.dumps(rows)]
    for more in ("show NAME", f"report -o {report}", "list --json", "export NAME --format vllm"):
        found = home.run("bench", *more.replace("NAME", point["name"]).split())
        said += [found.stdout, found.stderr]
    for text in [*said, report.read_text()]:
        assert KEY[5:] not in text


def test_a_server_that_refuses_a_key_may_repeat_it(home: Home, truth: Callable[..., Truth]) -> None:
    done = home.run(*words(truth(echo=1, fail=1).url, "--api-key-env", "KEY"), env={"KEY": KEY}, check=False)
    assert done.returncode not in (0, 10, 11)
    assert "[secret]" in done.stdout
    assert KEY[5:] not in done.stdout + done.stderr
