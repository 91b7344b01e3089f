"""What a sweep is at: one block that is rewritten on a terminal, one line an event anywhere else."""

import math
import shutil
import time
from collections.abc import Mapping
from typing import Any, TextIO

from nbs_lib.publish.sweep.plan import SEED, Point


def label(point: Point | Mapping[str, Any]) -> str:
    """Name a run by what varies: ``loss=ce mu=0.5 seed=1``. Takes a point or a record."""
    varied, seed = (point.varied, point.seed) if isinstance(point, Point) else (point["varied"], point.get("seed"))
    parts = [f"{name}={value}" for name, value in varied.items()] + ([f"{SEED}={seed}"] if seed is not None else [])
    return " ".join(parts) or "defaults"


def error_text(error: Mapping[str, Any] | None) -> str:
    """Say in one line what a run failed of: ``cell In [5] raised ValueError: no``."""
    if not error:
        return ""
    said = (error["message"] or "").strip().splitlines()
    text = ": ".join([error["name"], *said[:1]])
    if error["name"] in ("TimeLimit", "MemoryLimit"):
        return f"cell In [{error['cell']}]: {text}" if error["cell"] else text
    return f"cell In [{error['cell']}] raised {text}" if error["cell"] else text


def duration(seconds: float) -> str:
    """Write a time for a person: ``12 s``, ``3 min``, ``1 h 20 min``."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """Shows the events of a sweep.

    Args:
        name: of the sweep.
        total: points in all.
        done: points that were finished before.
        usual: seconds that a run took before, or 0.
        stream: where to; a terminal gets the block.
    """

    def __init__(self, name: str, total: int, done: int, usual: float, stream: TextIO) -> None:
        self.name, self.total, self.done, self.failed = name, total, done, 0
        self.usual, self.stream, self.block = usual, stream, stream.isatty()
        self.running: dict[str, float] = {}
        self.last, self._times, self._most, self._lines, self._drawn = "", [], 1, 0, 0.0

    @property
    def left(self) -> int:
        """Points that have not begun."""
        return max(0, self.total - self.done - self.failed - len(self.running))

    def started(self, point: Point, attempt: int) -> None:
        """Count a run that has begun."""
        self.running[point.key] = time.monotonic()
        self._most = max(self._most, len(self.running))
        self._event(f"started {label(point)}" + (f" (attempt {attempt})" if attempt > 1 else ""), False)

    def again(self, point: Point, error: Mapping[str, Any] | None) -> None:
        """Tell that a run is tried once more, and why."""
        self.running.pop(point.key, None)
        self._event(f"again {label(point)}: {error_text(error)}")

    def ended(self, point: Point, record: Mapping[str, Any]) -> None:
        """Count a run that has a record."""
        self.running.pop(point.key, None)
        finished = record["status"] == "finished"
        self.done += finished
        self.failed += not finished
        took = duration(record["wall_time"])
        if finished:
            self._times.append(record["wall_time"])
            values = [f"{k} {v:.4g}" for k, v in list(record["metrics"].items())[:2] if isinstance(v, (int, float))]
            self.last = f"{label(point)}: {', '.join(values) or 'no metrics'} ({took})"
            self._event(f"finished {self.last}; {self._counts()}", False)
        else:
            self._event(f"{record['status']} {label(point)}: {error_text(record['error'])} ({took}); {self._counts()}")

    def say(self, line: str) -> None:
        """Write a line that stays."""
        self._wipe()
        print(line, file=self.stream, flush=True)
        self.tick(force=True)

    def tick(self, force: bool = False) -> None:
        """Redraw the block, if it is time."""
        if not self.block or (time.monotonic() - self._drawn < 0.5 and not force):
            return
        self._wipe()
        self._drawn = time.monotonic()
        width = shutil.get_terminal_size().columns - 1
        lines = [f"{self.name}: {self._counts()}", *([f"  last: {self.last}"] if self.last else [])]
        self.stream.write("\n".join(line[:width] for line in lines) + "\n")
        self.stream.flush()
        self._lines = len(lines)

    def close(self) -> None:
        """Take the block away."""
        self._wipe()
        self.stream.flush()
        self.block = False

    def seconds_left(self) -> float | None:
        """Estimate the time to the end by the mean of the runs so far; None if there was none."""
        usual = sum(self._times) / len(self._times) if self._times else self.usual
        if not usual:
            return None
        now = time.monotonic()
        begun = sum(max(0.0, usual - (now - since)) for since in self.running.values())
        return (begun + usual * self.left) / self._most

    def _counts(self) -> str:
        text = f"{self.done} of {self.total} done, {len(self.running)} running, {self.failed} failed, {self.left} left"
        seconds = self.seconds_left()
        known = seconds is not None and seconds >= 1 and (self.left or self.running)
        return f"{text}, about {duration(seconds)}" if known else text

    def _event(self, line: str, stays: bool = True) -> None:
        """Write an event; on a terminal only what must not be overlooked stays above the block."""
        if stays or not self.block:
            self.say(line)
        else:
            self.tick(force=True)

    def _wipe(self) -> None:
        if self._lines:
            self.stream.write(f"\x1b[{self._lines}A\x1b[J")
            self._lines = 0
