"""What the pages tell people to type works, in the order in which they tell it.

In a fence of `console` the lines after `$ ` are typed, a `\\` at the end goes on; what stands between is what it may
look like. A fence of `python` is run; one that begins with `# NAME.py`, `# NAME.yaml` or, behind `#!`, with `# NAME.sh`
is written to that file. All pages happen in one directory, in the order in which the README names them, as a reader
types them; each begins in a new shell and ends what it started. `text` is for what cannot run here.

Each is typed twice in one state directory, as by a reader who comes back: what the first time left is in nobody's way.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until

from remuda.serving.tiny import make_tiny_model

if TYPE_CHECKING:
    from tests.conftest import Home

ROOT = Path(__file__).parents[3]
_FENCE = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:#!.*\n)?# ([\w./-]+\.(?:yaml|py|sh|json|jsonl|env|txt)|\.env)\n")
_TARGET = re.compile(r"^([a-z]+):", re.MULTILINE)
RUN = {"console", "python", "yaml", "sh"}
SHOWN = {"", "text", "json", "mermaid"}


@dataclass(frozen=True)
class Fence:
    """One fence of a page."""

    page: str
    line: int
    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that it is written to, empty when it is none."""
        named = _FILE.match(self.text)
        return named[1] if named else ""

    @property
    def commands(self) -> list[str]:
        """What is typed."""
        typed: list[str] = []
        goes_on = False
        for line in self.text.splitlines():
            if goes_on:
                typed[-1] += "\n" + line
            elif line.startswith("$ "):
                typed.append(line[2:])
            goes_on = (goes_on or line.startswith("$ ")) and line.endswith("\\")
        return typed


def fences(page: Path) -> list[Fence]:
    text = page.read_text()
    name = str(page.relative_to(ROOT))
    return [Fence(name, text.count("\n", 0, m.start()) + 1, m[1], m[2]) for m in _FENCE.finditer(text)]


def in_order() -> list[Path]:
    """The README, the pages that it names, and the rest."""
    named = [ROOT / link for link in re.findall(r"\]\((docs/[\w/-]+\.md)\)", (ROOT / "README.md").read_text())]
    return list(dict.fromkeys([ROOT / "README.md", *named, *sorted((ROOT / "docs").rglob("*.md"))]))


PAGES = in_order()
FENCES = [fence for page in PAGES for fence in fences(page)]
RUNNABLE = [page for page in PAGES if any(fence.language == "console" for fence in fences(page))]
#: Pages that start a cluster; see `test_cluster_pages.py`.
ON_A_CLUSTER = [page for page in RUNNABLE if 'eval "$(remuda try ' in page.read_text()]
TARGETS = set(_TARGET.findall((ROOT / "Makefile").read_text()))


def test_every_fence_is_run_or_says_that_it_is_not() -> None:
    assert [(one.page, one.line, one.language) for one in FENCES if one.language not in RUN | SHOWN] == []
    assert [(one.page, one.line) for one in FENCES if one.language == "console" and not one.commands] == []
    assert [(one.page, one.line) for one in FENCES if one.language == "text" and re.search(r"^\$ ", one.text)] == []
    runnable = {str(page.relative_to(ROOT)) for page in RUNNABLE}
    assert [(one.page, one.line) for one in FENCES if one.language == "python" and one.page not in runnable] == []


def test_make_has_what_is_told() -> None:
    told = {word for page in PAGES for word in re.findall(r"(?:`|^\$ |^)make ([a-z]+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test", "install"} <= told
    assert told - TARGETS == set()


@pytest.fixture(scope="session")
def demo_output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `remuda demo` leaves behind that pages use."""
    folder = tmp_path_factory.mktemp("docs") / "demo-output"
    folder.mkdir()
    make_tiny_model(folder / "demo.gguf")
    shutil.copyfile(ROOT / "src/remuda/cli/setup/prompts.parquet", folder / "prompts.parquet")
    return folder


class Reader:
    """Somebody who types what a page says; variables that were exported stay."""

    def __init__(self, home: Home, demo_output: Path) -> None:
        self.folder = home.root / "work"
        shutil.copytree(demo_output, self.folder / "demo-output", dirs_exist_ok=True)
        people = home.root / "people"
        people.mkdir(exist_ok=True)
        programs = Path(sys.executable).parent
        self.env = {**home.env, "HOME": str(people), "PATH": f"{programs}:{home.env['PATH']}", "COLUMNS": "100"}

    def do(self, fence: Fence) -> None:
        """Write the fence, or run it."""
        if fence.file:
            path = self.folder / fence.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fence.text)
        elif fence.language == "console":
            typed = [command for command in fence.commands if not command.startswith("make ")]
            after = self.folder / ".variables"
            self.run(fence, ["bash", "-c", "\n".join(["set -euo pipefail", *typed, f"env -0 > {after}"])])
            pairs = (entry.partition("=") for entry in after.read_text().split("\0") if entry)
            self.env = {name: value for name, _, value in pairs}
            after.unlink()
        elif fence.language == "python":
            self.run(fence, [sys.executable, "-c", fence.text])

    def run(self, fence: Fence, argv: list[str]) -> None:
        done = subprocess.run(
            argv, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=1200, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{fence.page}:{fence.line}\n{fence.text}\n{done.stdout}\n{done.stderr}"


def read(page: Path, home: Home, demo_output: Path) -> None:
    """Type the page twice; each time nothing runs in the end."""
    for _ in range(2):
        reader = Reader(home, demo_output)
        for fence in fences(page):
            if fence.language in RUN:
                reader.do(fence)
        try:
            until(lambda: not home.tokens(), f"{page.name} leaves nothing running", 60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{home.log()}") from None


@pytest.mark.real
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "page", [page for page in RUNNABLE if page not in ON_A_CLUSTER], ids=lambda page: str(page.relative_to(ROOT))
)
def test_a_page_from_top_to_bottom(page: Path, shared_home: Home, demo_output: Path) -> None:
    read(page, shared_home, demo_output)
    assert seen_by_git(shared_home.root / "work") == [], "who types the page does so in a clone of this repository"


def seen_by_git(folder: Path) -> list[str]:
    """What lies there that git would not ignore in a clone."""
    made = sorted(path.name + ("/" if path.is_dir() else "") for path in folder.iterdir())
    done = subprocess.run(["git", "check-ignore", *made], cwd=ROOT, capture_output=True, text=True, check=False)
    return sorted(set(made) - set(done.stdout.split()))
