"""The manifest: the one write that makes a micro-batch count."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.channel.segment import Segment
from penstock.state.backends.base import StateRef


class StageManifest(msgspec.Struct, frozen=True):
    """What was published of one stage: the winning task attempts and what they staged."""

    stage: int
    batch: int
    try_number: int
    winners: list[str]
    positions: dict[str, int] = {}
    """Of the source, behind this micro-batch."""
    consumed: dict[int, int] = {}
    """Per input channel, how many entries of its log this micro-batch took."""
    segments: dict[int, list[Segment]] = {}
    """Per output channel, what was appended to its log."""
    state: list[StateRef] = []
    """Per subtask, the state behind this micro-batch."""
    records_in: int = 0
    counters: dict[str, dict[str, int]] = {}


class Manifest(msgspec.Struct, frozen=True):
    """What was published of one micro-batch, of all stages that ran in it together."""

    stages: list[StageManifest]


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Publish: from the rename on the micro-batch has happened, before it has not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}")
    staged.write_bytes(msgspec.json.encode(manifest))
    staged.replace(path)


def read_manifest(path: Path) -> Manifest:
    """Return a published manifest."""
    return msgspec.json.decode(path.read_bytes(), type=Manifest)


def add_counts(totals: dict[str, dict[str, int]], more: Mapping[str, Mapping[str, int]]) -> None:
    """Add the counters of one micro-batch to the job's."""
    for uid, counts in more.items():
        mine = totals.setdefault(uid, {})
        for name, count in counts.items():
            mine[name] = mine.get(name, 0) + count
