"""Jobs as users write them."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from remuda import SwarmJob
from remuda.batch.jobs import ChatCompletionJob
from remuda.batch.pipeline.answer import RowAnswer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from remuda.batch.jobs import Ask


class SeedShape(SwarmJob):
    """The whole constructor spelled out, three columns, the openai client."""

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        model: str = "",
        input_column_name: str = "messages",
        output_cols: str | list[str] = "result",
        checkpoint_interval: int = 16,
        max_concurrency: int = 2,
        retries: int = 5,
        timeout: float = 600,
        **extra_kwargs: Any,
    ) -> None:
        super().__init__(
            endpoint=endpoint,
            model=model,
            input_column_name=input_column_name,
            output_cols=output_cols,
            checkpoint_interval=checkpoint_interval,
            max_concurrency=max_concurrency,
            retries=retries,
            timeout=timeout,
            **extra_kwargs,
        )
        self.output_cols = ["completion", "score", "current_model"]

    async def transform_items(self, items: list[Any]) -> list[tuple[str, float, str]]:
        temperature = float(self.kwargs.get("temperature", 0.7))
        results: list[tuple[str, float, str]] = []
        for prompt in items:
            resp = await self.client.completions.create(model=self.model, prompt=prompt, **self.kwargs)
            text = resp.choices[0].text or ""
            results.append((text, random.random(), f"{self.model}_{temperature}"))
        return results


class Shapes(SwarmJob):
    """Needs no endpoint; gives dicts, and values of every kind."""

    asks = False

    def __init__(self, **options: Any) -> None:
        super().__init__(output_cols=["half", "nested", "mixed"], **options)

    async def transform_items(self, items: list[Any]) -> list[dict[str, Any]]:
        return [
            {"mixed": 1 if "a" in item else "x", "nested": {"len": len(item), "words": item.split()}, "half": 0.5}
            for item in items
        ]


class Batches(SwarmJob):
    """Refuses a call that holds a bad item; says how many items a call held."""

    asks = False

    async def transform_items(self, items: list[Any]) -> list[str]:
        if any("bad" in item for item in items):
            raise ValueError("a bad item")
        return [f"{item} of {len(items)}" for item in items]


class Streams(SwarmJob):
    """Gives results one by one, the last first, and forgets one."""

    asks = False

    async def transform_streaming(self, items: list[Any]) -> AsyncIterator[tuple[int, Any]]:
        for index in reversed(range(len(items))):
            await asyncio.sleep(0)
            if "forget" not in items[index]:
                yield index, items[index].upper()


class Shouts(ChatCompletionJob):
    """A built-in job with another last step."""

    async def transform_items(self, items: list[Any]) -> list[str]:
        return [text.upper() for text in await super().transform_items(items)]


class Kinds(SwarmJob):
    """Says what its items are."""

    asks = False

    async def transform_items(self, items: list[Any]) -> list[str]:
        return [type(item).__name__ for item in items]


class Unstorable(SwarmJob):
    """Gives something that is no data."""

    asks = False

    async def transform_items(self, items: list[Any]) -> list[object]:
        return [object() for _ in items]


class Wrong(SwarmJob):
    """Gives too few results."""

    asks = False

    async def transform_items(self, items: list[Any]) -> list[Any]:
        return items[1:]


class Torn(SwarmJob):
    """Gives halves of characters back, as a client does that reads JSON with Python's own parser."""

    asks = False
    asked = 0

    async def transform_items(self, items: list[Any]) -> list[Any]:
        type(self).asked += 1
        return [{"said": f"\ud800 {item}", "deep": deep()} if item == "deep" else f"\udfff {item}" for item in items]


def deep() -> list[Any]:
    """A list within a list, and so on."""
    made: list[Any] = []
    for _ in range(5000):
        made = [made]
    return made


class Counting(ChatCompletionJob):
    """Says about tokens whatever it likes, and stumbles over some answers."""

    async def answer(self, item: Any, ask: Ask) -> RowAnswer:
        reply = await ask("/v1/chat/completions", self.body("messages", [{"role": "user", "content": item}]))
        return RowAnswer([reply["choices"][0]["message"]["content"]], reply["id"], 5.5, "stop")  # type: ignore[arg-type]


class Forgetful(ChatCompletionJob):
    """Has a mistake outside of what is done for each row."""

    def settings(self) -> dict[str, Any]:
        known: dict[str, str] = {}
        return {"which": known["nothing"]}
