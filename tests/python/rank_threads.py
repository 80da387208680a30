# SPDX-License-Identifier: MIT
"""Ranks as threads of a test: each runs the operators with the exchanges of its rank."""

from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np

#: Seconds after which a rank counts as stuck: a peer of one that failed waits forever, and nothing here takes long.
PATIENCE = 120


def on_ranks(num_ranks: int, body: Callable[[int], Any]) -> list[Any]:
    """What `body(rank)` returns on each rank; all run at the same time. Raises what the first failing rank raised."""
    results: dict[int, Any] = {}
    failures: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = body(rank)
        except BaseException as error:  # noqa: BLE001  (raised again where the test sees it)
            failures.append(error)

    threads = [Thread(target=run, args=(rank,), daemon=True) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1 if failures else PATIENCE)
    if failures:
        raise failures[0]
    if len(results) < num_ranks:
        raise TimeoutError(f"expected results of {num_ranks} ranks within {PATIENCE} s, found those of {list(results)}")
    return [results[rank] for rank in range(num_ranks)]


def random_needs(num_owned: list[int], seed: int = 5) -> list[list[list[int]]]:
    """needed[reader][owner]: about half of the rows of every owner, the reader too, in no order."""
    random = np.random.default_rng(seed)
    return [[list(random.permutation(count)[: count // 2]) for count in num_owned] for _ in num_owned]
