# SPDX-License-Identifier: MIT
"""Batches laid out ahead of their steps, while a GPU computes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item, Result = TypeVar("Item"), TypeVar("Result")


def ahead(make: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield make(item) for each item, in order, with up to `threads` + 1 of them under way or waiting.

    Errors of `make` are raised where its result would come. 0 threads: each is made when it is asked for.
    """
    if threads == 0:
        yield from map(make, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(make, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
