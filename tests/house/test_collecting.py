"""Files of tests are compiled once, and not by every worker."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest
from _pytest.assertion import rewrite
from tests.collecting import compile_tests

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_compiled_ahead_is_what_pytest_imports(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "test_one.py"
    path.write_text("def test_it(number: int) -> None:\n    assert number == 2\n")
    compile_tests([path], pytestconfig)

    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(rewrite, "_rewrite_test", refuse)
    hook = rewrite.AssertionRewritingHook(pytestconfig)
    spec = importlib.util.spec_from_file_location("test_one", path, loader=hook)
    assert spec
    module = importlib.util.module_from_spec(spec)
    hook.exec_module(module)
    with pytest.raises(AssertionError, match="assert 3 == 2"):  # its assertions were rewritten
        module.test_it(3)
