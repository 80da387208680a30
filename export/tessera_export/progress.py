# SPDX-License-Identifier: MIT
"""One progress bar for the phases of an export, and the seconds each of them took."""

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

logger = logging.getLogger(__name__)

PHASES = ("load", "trace", "export", "compile", "verify")

#: Seconds between two drawings of the bar while a phase (one blocking call of the compiler) runs.
REFRESH_SECONDS = 0.5


class Progress:
    """A bar over PHASES on standard error, drawn when that is a terminal; each finished phase is logged.

    Args:
        is_quiet: draw nothing, log only.
    """

    def __init__(self, is_quiet: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self._notes: list[str] = []
        is_hidden = is_quiet or not sys.stderr.isatty()
        self._bar = tqdm(
            total=len(PHASES),
            bar_format="{desc:<9}|{bar:20}| {n}/{total} [{elapsed}]{postfix}",
            disable=is_hidden,
        )

    def note(self, text: str) -> None:
        """Add a fact about the running phase, shown when the phase ends."""
        self._notes.append(text)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase of PHASES; the bar advances if it ends without an exception."""
        self._bar.set_description_str(name)
        self._notes.clear()
        start = time.perf_counter()
        finished = threading.Event()
        ticker = threading.Thread(target=self._redraw_until, args=(finished, start), daemon=True)
        ticker.start()
        try:
            yield
        finally:
            finished.set()
            ticker.join()
            self.seconds[name] = time.perf_counter() - start
        self._bar.set_postfix_str("")
        self._bar.update(1)
        notes = f" ({', '.join(self._notes)})" if self._notes else ""
        with self._bar.external_write_mode(file=sys.stderr):
            logger.info("%-8s %6.1f s%s", name, self.seconds[name], notes)

    def _redraw_until(self, finished: threading.Event, start: float) -> None:
        while not finished.wait(REFRESH_SECONDS):
            self._bar.set_postfix_str(f"this phase {time.perf_counter() - start:.0f} s")

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.close()
