"""The pages that start a Slurm of their own, from top to bottom; a file of its own, because they take a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.component.docs import test_pages

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Home

demo_output = test_pages.demo_output


@pytest.mark.real
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", test_pages.ON_A_CLUSTER, ids=lambda page: str(page.relative_to(test_pages.ROOT)))
def test_a_page_from_top_to_bottom(page: Path, home: Home, demo_output: Path) -> None:
    test_pages.read(page, home, demo_output)
