"""What a sweep shows: one line an event in a file, one block on a terminal."""

import io
import time

import pytest

from nbs_lib.publish.sweep.plan import Point
from nbs_lib.publish.sweep.progress import Progress, duration, error_text, label

A = Point("a", {}, {"loss": "ce", "mu": 0.5}, 1)
B = Point("b", {}, {"loss": "ce", "mu": 1.0}, 1)
GOOD = {"status": "finished", "wall_time": 40.0, "metrics": {"accuracy": 0.91234, "x": None}, "error": None}
BAD = {
    "status": "failed",
    "wall_time": 2.0,
    "metrics": {},
    "error": {"cell": 5, "name": "ValueError", "message": "no\nmore"},
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_lines(clock):
    stream = io.StringIO()
    progress = Progress("s", 5, 1, 0.0, stream)
    progress.started(A, 1)
    progress.started(B, 2)
    progress.ended(A, GOOD)
    progress.again(B, BAD["error"])
    progress.started(B, 3)
    progress.ended(B, BAD)
    progress.tick()
    progress.close()
    assert stream.getvalue().splitlines() == [
        "started loss=ce mu=0.5 seed=1",
        "started loss=ce mu=1.0 seed=1 (attempt 2)",
        # 40 s a run: one running since now, two waiting, two at once
        "finished loss=ce mu=0.5 seed=1: accuracy 0.9123 (40 s); 2 of 5 done, 1 running, 0 failed, 2 left, about 60 s",
        "again loss=ce mu=1.0 seed=1: cell In [5] raised ValueError: no",
        "started loss=ce mu=1.0 seed=1 (attempt 3)",
        "failed loss=ce mu=1.0 seed=1: cell In [5] raised ValueError: no (2.0 s); "
        "2 of 5 done, 0 running, 1 failed, 2 left, about 40 s",
    ]


def test_block(clock):
    """Rewritten in place: what scrolls away is only what must not be overlooked."""
    stream = Terminal()
    progress = Progress("s", 3, 0, 10.0, stream)
    progress.say("here")
    progress.started(A, 1)
    clock[0] += 4
    progress.tick()
    progress.ended(A, GOOD)
    progress.started(B, 1)
    progress.ended(B, BAD)
    progress.close()
    shown = screen(stream.getvalue())
    assert shown == ["here", "failed loss=ce mu=1.0 seed=1: cell In [5] raised ValueError: no (2.0 s); "
                     "1 of 3 done, 0 running, 1 failed, 1 left, about 40 s"]  # fmt: skip
    before_close = screen(stream.getvalue().removesuffix("\x1b[2A\x1b[J"))
    assert before_close[-2:] == [
        "s: 1 of 3 done, 0 running, 1 failed, 1 left, about 40 s",
        "  last: loss=ce mu=0.5 seed=1: accuracy 0.9123 (40 s)",
    ]


def screen(text: str) -> list[str]:
    """The lines a terminal would show, for the two sequences that are used."""
    lines: list[str] = []
    for part in text.split("\x1b["):
        if part[:1].isdigit() and part[1:2] == "A":
            del lines[-int(part[0]) :]
        lines += part.removeprefix("J").splitlines() if part[1:2] != "A" else []
    return lines


def test_estimates(clock):
    progress = Progress("s", 5, 1, 0.0, io.StringIO())
    assert progress.seconds_left() is None
    progress.usual = 10.0
    assert progress.seconds_left() == 40
    progress.started(A, 1)
    clock[0] += 4
    assert progress.seconds_left() == 6 + 3 * 10


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (42.3, "42 s"), (150, "3 min"), (5400, "90 min"), (7201, "2 h 1 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_names():
    assert label(A) == "loss=ce mu=0.5 seed=1"
    assert label({"varied": {}, "seed": None}) == "defaults"
    assert error_text(None) == ""
    assert error_text({"cell": 3, "name": "TimeLimit", "message": "late"}) == "cell In [3]: TimeLimit: late"
    assert error_text({"cell": None, "name": "KernelError", "message": ""}) == "KernelError"
