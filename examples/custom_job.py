"""A job of one's own: three output columns, the `openai` client of the swarm, arguments from the command line.

Run it with `remuda job submit examples.custom_job:MyCustomSwarmJob --name SWARM --input prompts.parquet
--output answers.parquet --job-kwargs '{"temperature": 0.2}'`.
"""

from __future__ import annotations

import random
from typing import Any

from remuda import SwarmJob


class MyCustomSwarmJob(SwarmJob):
    """Completes the text in the input column; adds a score and a tag."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.output_cols = ["completion", "score", "current_model"]

    async def transform_items(self, items: list[Any]) -> list[tuple[str, float, str]]:
        """One tuple per item, in the order of `output_cols`."""
        temperature = float(self.kwargs.get("temperature", 0.7))
        results: list[tuple[str, float, str]] = []
        for prompt in items:
            # Connection errors, timeouts, 429 and 5xx may simply be raised: the driver tries again.
            reply = await self.client.completions.create(model=self.model, prompt=prompt, **self.kwargs)
            text = reply.choices[0].text or ""
            results.append((text, random.random(), f"{self.model}_{temperature}"))
        return results
