"""Sink that writes files which appear complete, when the checkpoint that holds them is."""
# ruff: noqa: D102 - the contract documents the methods of a sink

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from penstock.common.missing_names import AsksForPyFlink
from penstock.common.serialization import BulkWriterFactory, Encoder
from penstock.connectors.buckets import BucketAssigner
from penstock.connectors.committer import Committer, CommitterContext
from penstock.connectors.durable import make_directory
from penstock.connectors.file_listing import local_path
from penstock.connectors.part_committer import PartFileCommitter
from penstock.connectors.part_files import PartFilePublisher, PartNames
from penstock.connectors.part_format import BulkFormat, PartFormat, RowFormat
from penstock.connectors.part_staging import PartFileWriter
from penstock.connectors.rolling import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    RollingPolicy,
)
from penstock.connectors.sink import (
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.staging_area import StagingArea
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
    part_format: PartFormat
    bucket_assigner: BucketAssigner
    rolling_policy: RollingPolicy
    output_file_config: OutputFileConfig


class FileSink(Sink):
    """Part files in buckets (directories) below a path, exactly once with checkpoints.

    Everything unfinished lies in a hidden directory there. Files become visible complete and
    under their final names, and files already there are never touched.
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    @staticmethod
    def for_row_format(base_path: str | os.PathLike[str], encoder: Encoder) -> RowFormatBuilder:
        """Begin a sink that writes records one after the other with an encoder."""
        return RowFormatBuilder(
            _Settings(
                local_path(base_path),
                RowFormat(encoder),
                BucketAssigner.date_time_bucket_assigner(),
                RollingPolicy.default_rolling_policy(),
                OutputFileConfig.builder().build(),
            )
        )

    @staticmethod
    def for_bulk_format(
        base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory
    ) -> BulkFormatBuilder:
        """Begin a sink that writes files of a bulk format; each checkpoint ends them."""
        return BulkFormatBuilder(
            _Settings(
                local_path(base_path),
                BulkFormat(writer_factory),
                BucketAssigner.date_time_bucket_assigner(),
                RollingPolicy.on_checkpoint_rolling_policy(),
                OutputFileConfig.builder().build(),
            )
        )

    def writer(self, context: WriterContext) -> SinkWriter:
        settings = self._settings
        policy = settings.rolling_policy
        limit = policy.part_size if isinstance(policy, DefaultRollingPolicy) else None
        return PartFileWriter(
            context,
            _area(settings, context, context.staging_dir),
            settings.part_format,
            settings.bucket_assigner.assigner(),
            limit,
        )

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        settings, config = self._settings, self._settings.output_file_config
        try:
            make_directory(settings.base_path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnwritablePathError(str(settings.base_path), reason) from error
        names = PartNames(settings.base_path, config.part_prefix, config.part_suffix)
        area = _area(settings, context, context.work_dir)
        return PartFilePublisher(
            names, settings.rolling_policy, settings.part_format, area, context
        )

    def committer(self, context: CommitterContext) -> Committer:
        return PartFileCommitter(_area(self._settings, context, context.work_dir))


def _area(
    settings: _Settings,
    context: WriterContext | PublisherContext | CommitterContext,
    step_dir: Path,
) -> StagingArea:
    return StagingArea(settings.base_path, context.job, step_dir.name, context.attempt)


class _Builder(AsksForPyFlink):
    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def with_bucket_check_interval(self, interval: int) -> Self:
        """Accept an interval; ages are looked at with every micro-batch and checkpoint."""
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
        """Choose the buckets; by default they are named after the hour of writing."""
        self._settings = replace(self._settings, bucket_assigner=bucket_assigner)
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
        """Choose the names of part files."""
        self._settings = replace(self._settings, output_file_config=output_file_config)
        return self

    def build(self) -> FileSink:
        """Make the sink."""
        return FileSink(self._settings)


class RowFormatBuilder(_Builder):
    """Builds a :class:`FileSink` that writes record after record."""

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
        """Choose when a new part begins."""
        self._settings = replace(self._settings, rolling_policy=rolling_policy)
        return self


class BulkFormatBuilder(_Builder):
    """Builds a :class:`FileSink` that writes files of a bulk format."""

    def with_rolling_policy(self, rolling_policy: OnCheckpointRollingPolicy) -> Self:
        """Accept the only policy there is for bulk formats: a checkpoint ends every part."""
        if not isinstance(rolling_policy, OnCheckpointRollingPolicy):
            message = (
                "a bulk format rolls at every checkpoint: use "
                f"RollingPolicy.on_checkpoint_rolling_policy(); got {rolling_policy!r}"
            )
            raise ValueError(message)
        return self
