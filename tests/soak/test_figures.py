"""What a soak prints at its end."""

from __future__ import annotations

import json
from collections import Counter

from tests.soak.soak import Figures, as_json


def test_figures_with_kills_are_json() -> None:
    told = json.loads(as_json(Figures("here", 7, kills=Counter({"host": 2, "driver of a driver": 1}))))
    assert (told["seed"], told["kills"]) == (7, {"host": 2, "driver of a driver": 1})
