"""Sink that writes part files, which become visible when their checkpoint completes."""
# ruff: noqa: D102 - the contract documents the methods of a sink

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from penstock.common.pyflink.missing_names import ExplainsMissingMethods
from penstock.common.serialization import BulkWriterFactory, Encoder
from penstock.connectors.contracts import sink
from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.contracts.committer import Committer, CommitterContext
from penstock.connectors.files.bucket_assigner import BucketAssigner
from penstock.connectors.files.committer import PartFileCommitter
from penstock.connectors.files.listing import local_path
from penstock.connectors.files.publisher import (
    OutputFileConfig,
    PartFilePublisher,
    PartFileSettings,
)
from penstock.connectors.files.rolling_policy import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    RollingPolicy,
)
from penstock.connectors.files.writer import BulkFormat, PartFileWriter, RowFormat
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.errors import UnwritablePathError
from penstock.storage.durable_files import make_directory

__all__ = ["FileSink", "OutputFileConfig"]


@dataclass(frozen=True, slots=True)
class _Settings(PartFileSettings):
    bucket_assigner: BucketAssigner = field(
        default_factory=BucketAssigner.date_time_bucket_assigner
    )

    def staging(
        self, context: sink.WriterContext | sink.PublisherContext | CommitterContext, step_dir: Path
    ) -> StagingDirectory:
        """Return the step's staging directory; ``step_dir`` has the step's name."""
        return StagingDirectory.shared_path(
            self.base_path, context.job, context.job_instance, step_dir.name, context.attempt
        )


class FileSink(sink.Sink):
    """Part files in buckets (directories) below a path, exactly once with checkpoints.

    Unfinished files are in a hidden directory below the path. Files become visible complete and
    under their final names, and files that exist already are never touched.
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    @staticmethod
    def for_row_format(base_path: str | os.PathLike[str], encoder: Encoder) -> RowFormatBuilder:
        """Return the builder of a sink that writes record after record with an encoder."""
        policy = RollingPolicy.default_rolling_policy()
        return RowFormatBuilder(_Settings(local_path(base_path), RowFormat(encoder), policy))

    @staticmethod
    def for_bulk_format(
        base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory
    ) -> BulkFormatBuilder:
        """Return the builder of a sink that writes a bulk format; files roll at each checkpoint."""
        policy = RollingPolicy.on_checkpoint_rolling_policy()
        return BulkFormatBuilder(
            _Settings(local_path(base_path), BulkFormat(writer_factory), policy)
        )

    def paths_on_hosts(self) -> Sequence[Path]:
        return (self._settings.base_path,)

    def writer(self, context: sink.WriterContext) -> sink.SinkWriter:
        settings, policy = self._settings, self._settings.rolling_policy
        return PartFileWriter(
            context,
            settings.base_path,
            settings.staging(context, context.staging_dir),
            settings.part_format,
            settings.bucket_assigner.assigner(),
            policy.part_size if isinstance(policy, DefaultRollingPolicy) else None,
        )

    def publisher(self, context: sink.PublisherContext) -> sink.SinkPublisher:
        settings = self._settings
        try:
            make_directory(settings.base_path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnwritablePathError(str(settings.base_path), reason) from error
        return PartFilePublisher(settings, settings.staging(context, context.work_dir), context)

    def committer(self, context: CommitterContext) -> Committer:
        return PartFileCommitter(self._settings.staging(context, context.work_dir))


class _Builder(ExplainsMissingMethods):
    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def with_bucket_check_interval(self, interval: int) -> Self:
        """Accept an interval; ages are checked with every micro-batch and checkpoint."""
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
        """Set how values are assigned to buckets; by default by the hour of writing."""
        self._settings = replace(self._settings, bucket_assigner=bucket_assigner)
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
        """Set prefix and suffix of the names of part files."""
        self._settings = replace(self._settings, output_file_config=output_file_config)
        return self

    def build(self) -> FileSink:
        """Build the sink."""
        return FileSink(self._settings)


class RowFormatBuilder(_Builder):
    """Builds a :class:`FileSink` that writes record after record."""

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
        """Set when a new part file begins."""
        self._settings = replace(self._settings, rolling_policy=rolling_policy)
        return self


class BulkFormatBuilder(_Builder):
    """Builds a :class:`FileSink` that writes files of a bulk format."""

    def with_rolling_policy(self, rolling_policy: OnCheckpointRollingPolicy) -> Self:
        """Accept the only policy of bulk formats: every part ends at the next checkpoint."""
        message = (
            "a bulk format rolls at every checkpoint: use "
            f"RollingPolicy.on_checkpoint_rolling_policy(); got {rolling_policy!r}"
        )
        require(isinstance(rolling_policy, OnCheckpointRollingPolicy), message, ValueError)
        return self
