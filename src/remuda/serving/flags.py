"""Flags of the programs that plans start beside a router or as an engine, and keys, which no argument may show."""

from __future__ import annotations

import argparse
import os
from typing import NoReturn

from remuda.enter import NAME


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence and ends with 2. `word` is the program's of `enter`."""

    def __init__(self, word: str) -> None:
        super().__init__(prog=f"python -m {NAME} {word}", allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """End the process."""
        self.exit(2, f"{self.prog}: {message}\n")

    def take(self, variable: str) -> str:
        """Value of a variable that is named, which is not empty; the environment does not have it afterwards."""
        value = os.environ.pop(variable, "")
        if variable and not value:
            self.error(f"${variable} is empty")
        return value
