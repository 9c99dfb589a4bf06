"""A pytest plugin that makes sure that the tests import the broken copy, and not the product."""

from __future__ import annotations

import os
from pathlib import Path


def pytest_configure() -> None:
    import remuda

    found = Path(remuda.__file__).parent
    if found != Path(os.environ["BROKEN_PACKAGE"]):
        raise RuntimeError(f"the tests would import {found}")
