"""Hosts are started as a user's commands start them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Home


@pytest.fixture
def home(cold_home: Home) -> Home:
    return cold_home
