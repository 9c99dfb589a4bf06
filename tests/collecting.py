"""Collecting, made cheap: every worker of pytest-xdist imports every file of tests."""

from __future__ import annotations

import gc
import multiprocessing
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.assertion import rewrite

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

HERE = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected lives as long as the process: nothing looks for garbage in it, now or while tests run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Compile all tests once, before workers begin: they come to a file at the same time, and each would compile it."""
    if sys.dont_write_bytecode:
        return
    files = [path for path in HERE.rglob("*.py") if path.name.startswith("test_") or path.name == "conftest.py"]
    with multiprocessing.get_context("fork").Pool(initializer=_know, initargs=(config,)) as pool:
        pool.map(_compile, files)


def compile_tests(files: Iterable[Path], config: pytest.Config) -> None:
    """See that the compiled file is there with which pytest imports a test file, its assertions rewritten."""
    for path in files:
        folder = rewrite.get_cache_dir(path)
        compiled = folder / (path.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(path, compiled) is None and rewrite.try_makedirs(folder):
            source, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, compiled)


_CONFIG: list[pytest.Config] = []


def _know(config: pytest.Config) -> None:
    """A child of the pool has it from the fork: it cannot be sent."""
    _CONFIG[:] = [config]


def _compile(path: Path) -> None:
    compile_tests([path], _CONFIG[0])
