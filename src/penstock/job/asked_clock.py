"""The clock of idleness."""

from __future__ import annotations

__all__ = ["AskedClock"]


class AskedClock:
    """Processing time as far as somebody looked whether there is input.

    Who was not asked cannot be called silent. So the clock only moves when input was asked for, and
    the time in which nothing may be read, since others are behind, does not count at all.
    """

    def __init__(self, now: float) -> None:
        self.reading = now
        self._last = now
        self._lost = 0.0
        self._is_held = False

    def look(self, now: float, *, held: bool, asked: bool) -> None:
        """Learn whether input may be read from now on, and whether there was a look at it."""
        if self._is_held:
            self._lost += now - self._last
        self._last, self._is_held = now, held
        if asked and not held:
            self.reading = now - self._lost

    def at(self, now: float) -> float:
        """Return what the clock would show if input had been asked for now."""
        return (self._last if self._is_held else now) - self._lost

    def when(self, reading: float) -> float | None:
        """Return when it will show something, None if it stands still."""
        return None if self._is_held else reading + self._lost
