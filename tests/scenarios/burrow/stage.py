"""Plays stories of one group: each line is an event, each indented line what is said about the group then.

at 90s | end orders-0 100 (a look at the log) | commit orders-0 50 | deleted orders-0 (its offset) | gone orders-0
status (the group's verdict, lag and completeness, then its partitions)
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.monitor.burrow.board import Board


class Stage:
    """One group on a board, with a clock of its own."""

    def __init__(self, board: Board | None = None, group: str = "group") -> None:
        self.board = Board() if board is None else board
        self.group = group
        self.now_ms = 0
        self.ends: dict[tuple[str, int], int] = {}

    def run(self, story: str) -> str:
        """The story with what came of each event."""
        lines: list[str] = []
        for line in story.splitlines():
            if line.startswith(" "):
                continue
            lines.append(line)
            if line and not line.startswith("#"):
                lines += [f"    {event}" for event in self._play(*line.split())]
        return "\n".join(lines) + "\n"

    def _play(self, event: str, *words: str) -> Iterator[str]:
        if event == "at":
            self.now_ms = int(words[0].removesuffix("s")) * 1000
        elif event == "status":
            yield from self._status()
        else:
            topic, _, number = words[0].rpartition("-")
            key = (topic, int(number))
            if event == "end":
                self.ends[key] = int(words[1])
                # What other groups read is still there.
                self.board.note_ends({**{k: e[-1] for k, e in self.board.ends.items()}, **self.ends})
            elif event == "commit":
                self.board.note_commit(self.group, key, int(words[1]), self.now_ms)
            elif event == "deleted":
                self.board.forget_commit(self.group, key)
            elif event == "gone":
                self.ends.pop(key)
                self.board.note_ends(self.ends)
            else:
                raise ValueError(f"no such event: {event}")

    def _status(self) -> Iterator[str]:
        status = self.board.status(self.group, self.now_ms)
        if status is None:
            yield "NOTFOUND"
            return
        yield f"{status.status.name} lag {status.lag} complete {status.complete:.0%}"
        for row in status.partitions:
            place = row.partition
            yield f"partition {place} {row.status.name} lag {row.lag} complete {row.complete:.0%}"
