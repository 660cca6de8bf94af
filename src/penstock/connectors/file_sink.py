"""Sink that writes files which appear only when they are complete."""
# ruff: noqa: D102 - the contract documents the methods of a sink

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from penstock.common.serialization import Encoder
from penstock.connectors.buckets import BucketAssigner
from penstock.connectors.file_listing import local_path
from penstock.connectors.part_files import PartFilePublisher, PartNames
from penstock.connectors.part_staging import PartFileWriter
from penstock.connectors.rolling import DefaultRollingPolicy, RollingPolicy
from penstock.connectors.sink import (
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.errors import UnwritablePathError

__all__ = ["FileSink", "OutputFileConfig"]


@dataclass(frozen=True, slots=True)
class OutputFileConfig:
    """What the names of part files begin and end with."""

    part_prefix: str
    part_suffix: str

    @staticmethod
    def builder() -> OutputFileConfigBuilder:
        """Begin with ``part`` and no suffix."""
        return OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """Return what the names begin with."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """Return what the names end with."""
        return self.part_suffix


class OutputFileConfigBuilder:
    """Builds an :class:`OutputFileConfig`."""

    def __init__(self) -> None:
        self.part_prefix = "part"
        self.part_suffix = ""

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        """Let names begin with this."""
        self.part_prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        """Let names end with this."""
        self.part_suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        """Make the configuration."""
        return OutputFileConfig(self.part_prefix, self.part_suffix)


@dataclass(frozen=True, slots=True)
class _Settings:
    base_path: Path
    encoder: Encoder
    bucket_assigner: BucketAssigner
    rolling_policy: RollingPolicy
    output_file_config: OutputFileConfig


class FileSink(Sink):
    """Part files in buckets (directories) below a path.

    Everything unfinished lies in a hidden directory there. Files become visible complete and
    under their final names, and files already there are never touched.
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        # Two sinks may share a path, and a program may be started again beside its leftovers.
        self._staging = settings.base_path / f".staging-{uuid4().hex}"

    @staticmethod
    def for_row_format(base_path: str | os.PathLike[str], encoder: Encoder) -> RowFormatBuilder:
        """Begin a sink that writes records one after the other with an encoder."""
        return RowFormatBuilder(
            _Settings(
                local_path(base_path),
                encoder,
                BucketAssigner.date_time_bucket_assigner(),
                RollingPolicy.default_rolling_policy(),
                OutputFileConfig.builder().build(),
            )
        )

    def writer(self, context: WriterContext) -> SinkWriter:
        settings = self._settings
        policy = settings.rolling_policy
        limit = policy.part_size if isinstance(policy, DefaultRollingPolicy) else None
        return PartFileWriter(
            context,
            self._staging / context.staging_dir.name,
            settings.encoder,
            settings.bucket_assigner.assigner(),
            limit,
        )

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        settings, config = self._settings, self._settings.output_file_config
        try:
            settings.base_path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnwritablePathError(str(settings.base_path), reason) from error
        names = PartNames(settings.base_path, config.part_prefix, config.part_suffix)
        staging = self._staging / context.work_dir.name
        return PartFilePublisher(names, settings.rolling_policy, staging)


class RowFormatBuilder:
    """Builds a :class:`FileSink` that writes record after record."""

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def with_bucket_check_interval(self, interval: int) -> RowFormatBuilder:
        """Accept an interval; ages are looked at with every micro-batch."""
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> RowFormatBuilder:
        """Choose the buckets; by default they are named after the hour of writing."""
        self._settings = replace(self._settings, bucket_assigner=bucket_assigner)
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> RowFormatBuilder:
        """Choose when a new part begins."""
        self._settings = replace(self._settings, rolling_policy=rolling_policy)
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> RowFormatBuilder:
        """Choose the names of part files."""
        self._settings = replace(self._settings, output_file_config=output_file_config)
        return self

    def build(self) -> FileSink:
        """Make the sink."""
        return FileSink(self._settings)
