"""The pages that start a Slurm of their own, from top to bottom; a file of its own, because they take a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from tests.component.docs import test_pages

from remuda.base.units import parse_size
from remuda.serving.smollm import MODEL_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Home

demo_output = test_pages.demo_output


def test_replicas_have_memory_for_the_model_of_the_demo() -> None:
    """What is typed here has a smaller model, so that it takes seconds; the practice cluster gives 100 MB a CPU."""
    documents = [
        yaml.safe_load(fence.text)
        for page in test_pages.ON_A_CLUSTER
        for fence in test_pages.fences(page)
        if fence.language == "yaml" and "demo-output/demo.gguf" in fence.text
    ]
    assert [document["name"] for document in documents] == ["chat"]
    assert parse_size(documents[0]["backend"]["mem"]) > 4 * MODEL_BYTES


@pytest.mark.real
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", test_pages.ON_A_CLUSTER, ids=lambda page: str(page.relative_to(test_pages.ROOT)))
def test_a_page_from_top_to_bottom(page: Path, home: Home, demo_output: Path) -> None:
    test_pages.read(page, home, demo_output)
