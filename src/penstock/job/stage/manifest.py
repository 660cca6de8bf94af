"""The manifest of a micro-batch: the one write that publishes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.channel.segment import Segment
from penstock.common.new_files import create_file
from penstock.state.backends.refs import StateRef


class StageManifest(msgspec.Struct, frozen=True):
    """What one stage published: the winning task attempts and what they staged."""

    stage: int
    batch: int
    try_number: int
    winners: list[str]
    positions: dict[str, int] = {}
    """Of the source, after this micro-batch."""
    consumed: dict[int, int] = {}
    """Per input channel, how many log entries the micro-batch consumed."""
    segments: dict[int, list[Segment]] = {}
    """Per output channel, the segments appended to its log."""
    state: list[StateRef] = []
    """Per subtask, the state after this micro-batch."""
    records_in: int = 0
    counters: dict[str, dict[str, int]] = {}


class Manifest(msgspec.Struct, frozen=True):
    """What one micro-batch published, for all stages of the region."""

    stages: list[StageManifest]


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Publish a micro-batch; the rename is the atomic step that makes it count."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}")
    with create_file(staged, "wb") as file:
        file.write(msgspec.json.encode(manifest))
    staged.replace(path)


def add_counts(totals: dict[str, dict[str, int]], more: Mapping[str, Mapping[str, int]]) -> None:
    """Add the counters of one micro-batch to the totals."""
    for uid, counts in more.items():
        mine = totals.setdefault(uid, {})
        for name, count in counts.items():
            mine[name] = mine.get(name, 0) + count
