"""The class that users subclass: rows in, results out; all else is the driver's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from openai import AsyncOpenAI


class SwarmJob:
    """A transformation of rows, usually by asking a model.

    Subclasses implement `transform_items`. Reading, checkpoints, retries, concurrency and writing belong to the driver:
    it calls `transform_items` with a list of one item (or `native_batch_size` of them), many calls at once.

    Args:
        endpoint: base URL of an OpenAI-compatible server, with or without `/v1`; None takes `$ENDPOINT`.
        model: model name to ask for.
        input_column_name: the column that holds the items.
        output_cols: name of the output column, or names of several.
        checkpoint_interval: rows per write of the checkpoint.
        max_concurrency: bound of calls at once; 0 adapts.
        retries: tries of a row after its first.
        timeout: bound of one try, in seconds.
        extra_kwargs: kept as `kwargs`; the built-in jobs send them to the server.

    Attributes:
        columns: input columns to look for when the user names none, in this order.
        asks: whether the job needs an endpoint at all.
        likes_order: whether rows may be asked in another order than that of the input without being told to.
    """

    columns: ClassVar[tuple[str, ...]] = ("messages", "prompt", "text")
    asks: ClassVar[bool] = True
    likes_order: ClassVar[bool] = False

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        model: str = "",
        input_column_name: str = "messages",
        output_cols: str | list[str] = "result",
        checkpoint_interval: int = 16,
        max_concurrency: int = 0,
        retries: int = 5,
        timeout: float = 600,
        **extra_kwargs: Any,
    ) -> None:
        self.endpoint = endpoint if endpoint is not None else os.environ.get("ENDPOINT", "")
        self.model = model
        self.input_column_name = input_column_name
        self.output_cols: str | list[str] = output_cols
        self.checkpoint_interval = checkpoint_interval
        self.max_concurrency = max_concurrency
        self.retries = retries
        self.timeout = timeout
        self.kwargs: dict[str, Any] = extra_kwargs
        self._api_key: str | None = None
        self._client: AsyncOpenAI | None = None
        self._is_own = False
        self._left: list[AsyncOpenAI] = []

    @property
    def client(self) -> AsyncOpenAI:
        """An `openai` client of the endpoint, made on first use. It does not retry: the driver does.

        Raises:
            InputError: the `openai` package is not installed.
        """
        if self._client is None:
            from remuda.batch.openai_client import make_client

            self._client = make_client(self.endpoint, self._api_key, timeout_s=self.timeout)
            self._is_own = True
        return self._client

    @client.setter
    def client(self, client: AsyncOpenAI) -> None:
        self._client = client
        self._is_own = False

    @property
    def output_names(self) -> list[str]:
        """Names of the output columns."""
        return [self.output_cols] if isinstance(self.output_cols, str) else list(self.output_cols)

    def use_key(self, api_key: str) -> None:
        """Send `api_key` to the endpoint instead of the environment's; it is shown nowhere."""
        self._api_key = api_key

    def move(self, endpoint: str) -> None:
        """The endpoint is elsewhere now: `client` is a new one from the next call on, unless it was given."""
        self.endpoint = endpoint
        if self._client is not None and self._is_own:
            self._left.append(self._client)
            self._client = None

    def settings(self) -> dict[str, Any]:
        """What changes the answers besides the constructor's arguments; part of the checkpoint's fingerprint."""
        return {}

    async def transform_items(self, items: list[Any]) -> Sequence[Any]:
        """One result per item, in order.

        A result is one value, or with several output columns a tuple in their order or a dict by their names. Raise to
        reject the whole call: connection errors, timeouts and HTTP 408, 409, 425, 429 and 5xx are tried again.

        Args:
            items: values of the input column.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement transform_items")

    async def transform_streaming(self, items: list[Any]) -> AsyncIterator[tuple[int, Any]]:
        """Results as they come, as `(index into items, result)`. Override it where a call's results come one by one."""
        for index, result in enumerate(await self.transform_items(items)):
            yield index, result

    async def close(self) -> None:
        """Let go of connections."""
        clients = [*self._left, *([self._client] if self._client is not None else [])]
        self._left, self._client = [], None
        for client in clients:
            await client.close()


def split_result(result: Any, names: Sequence[str]) -> list[Any]:
    """One value per output column from what a job returned for one item.

    Raises:
        ValueError: the result does not fit the columns.
    """
    if isinstance(result, dict) and (len(names) > 1 or set(result) == set(names)):
        if missing := [name for name in names if name not in result]:
            raise ValueError(f"the job's result lacks {missing[0]!r}; it has {', '.join(map(str, result))}")
        return [result[name] for name in names]
    if len(names) == 1:
        return [result]
    if not isinstance(result, (tuple, list)) or len(result) != len(names):
        size = len(result) if isinstance(result, (tuple, list)) else f"one {type(result).__name__}"
        raise ValueError(f"the job returned {size} for {len(names)} output columns ({', '.join(names)})")
    return list(result)
