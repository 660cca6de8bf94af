"""One stage with its inputs and snapshots: real logs, the real decision, nothing else.

What happens is written as in a diagram of a stream, one word for each thing that arrives:

    a1    a record, which is named so, on input a
    a1*5  five records in one entry
    a#2   the barrier of checkpoint 2 on input a
    a$    the end of input a
    !2    checkpoint 2 is aborted
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from penstock.channel.log import (
    END_OF_INPUT,
    UNBOUNDED,
    ChannelLog,
    Entry,
    EntryKind,
    barrier,
)
from penstock.channel.segment import Segment, Slice
from penstock.checkpoint.barriers.alignment import (
    NO_BARRIER,
    AlignmentDecision,
    BarrierHandling,
    InputFacts,
    decide_alignment,
)
from penstock.checkpoint.barriers.in_flight_data import InFlightData
from penstock.ids import ChannelId, CheckpointId

PLENTY = 1000
_WORD = re.compile(r"(?P<input>[a-z])(?:(?P<end>\$)|#(?P<id>\d+)|(?P<no>\d+)(?:\*(?P<rows>\d+))?)")


def data(rows: int = 1, name: str = "name") -> Entry:
    return Entry(EntryKind.DATA, (Segment(name, 1, [[Slice(0, 1, rows, 0)]]),))


def b(checkpoint: int) -> Entry:
    return barrier(CheckpointId(checkpoint))


def names(entries: list[Entry]) -> str:
    return " ".join(s.name for e in entries for s in e.segments)


@dataclass
class OneStage:
    """A stage with inputs a, b, c, …, as many as there are letters in `inputs`."""

    inputs: str = "ab"
    handling: BarrierHandling = BarrierHandling.ALIGNED
    """Of every checkpoint whose barrier arrives and that `live` does not know yet."""
    at_once: int = PLENTY
    live: dict[CheckpointId, BarrierHandling] = field(default_factory=dict)
    snapshots: list[int] = field(default_factory=list)
    """The checkpoints it took part in, in order."""
    states: dict[int, str] = field(default_factory=dict)
    """What it had processed at each of those snapshots."""
    blocked: str = ""
    """The inputs that wait, after the last look."""
    ends: int = 0
    """How often the decision said that all data is processed."""

    def __post_init__(self) -> None:
        self.logs = {ChannelId(i): ChannelLog(UNBOUNDED) for i in range(len(self.inputs))}
        self.passed = NO_BARRIER
        self._seen: list[str] = []
        self._recordings: dict[int, InFlightData] = {}
        self._over: set[int] = set()

    # -- what happens -----------------------------------------------------------------------

    def play(self, story: str) -> None:
        """Let things happen one after the other; the stage does all it can after each."""
        for word in story.split():
            self.arrive(word)
            self.run()

    def arrive(self, story: str) -> None:
        """Let things happen while the stage is busy."""
        for word in story.split():
            if word.startswith("!"):
                self._over.add(int(word[1:]))
                self.live.pop(CheckpointId(int(word[1:])), None)
            else:
                self._arrive(word)

    def trigger(self, checkpoint: int, handling: BarrierHandling) -> None:
        """Let the stage know of a checkpoint before its barrier comes, or change how it passes."""
        self.live[CheckpointId(checkpoint)] = handling

    def run(self) -> None:
        """Work until there is nothing more to do."""
        while self.step():
            pass

    def step(self) -> bool:
        """Run one micro-batch, if there is one."""
        decision = self.decide()
        self.blocked = "".join(self.inputs[c] for c in sorted(decision.blocked))
        for recording in self._recordings.values():
            self._observe(recording)
        for channel, count in decision.take.items():
            self._seen += names(self.logs[channel].consume(count)).split()
        self.ends += decision.end_of_input
        if decision.barrier is not None:
            self.passed = decision.barrier
            self.snapshots.append(decision.barrier)
            self.states[decision.barrier] = self.seen
            if decision.overtakes:
                positions = {c: log.position for c, log in self.logs.items()}
                self._recordings[decision.barrier] = InFlightData(decision.barrier, positions)
                self._observe(self._recordings[decision.barrier])
        return bool(decision.take) or decision.barrier is not None

    def decide(self) -> AlignmentDecision:
        """Look at what waits, and say what the next micro-batch would be."""
        facts = {
            c: InputFacts(log.pending(), log.has_ended, passed=log.passed)
            for c, log in self.logs.items()
        }
        return decide_alignment(facts, self.live, self.at_once, self.passed)

    # -- what was seen ----------------------------------------------------------------------

    @property
    def seen(self) -> str:
        """The records the stage has processed, by name."""
        return " ".join(sorted(self._seen))

    def in_flight(self, checkpoint: int) -> str:
        """What was recorded for a checkpoint up to now, input by input."""
        found = self._recordings[checkpoint].inputs
        return " ".join(filter(None, (names(found[c].entries) for c in sorted(found))))

    def is_recorded(self, checkpoint: int) -> bool:
        """Whether the barrier of an overtaking checkpoint has landed everywhere."""
        return self._recordings[checkpoint].is_complete

    def _arrive(self, word: str) -> None:
        match = _WORD.fullmatch(word)
        assert match is not None, f"what is {word!r}?"
        log = self.logs[ChannelId(self.inputs.index(match["input"]))]
        if match["end"]:
            log.append(END_OF_INPUT)
        elif match["id"]:
            checkpoint = CheckpointId(int(match["id"]))
            if checkpoint not in self._over:
                self.live.setdefault(checkpoint, self.handling)
            log.append(barrier(checkpoint))
        else:
            log.append(data(int(match["rows"] or 1), match["input"] + match["no"]))

    def _observe(self, recording: InFlightData) -> None:
        for channel, log in self.logs.items():
            recording.observe(channel, log.position, log.pending())
