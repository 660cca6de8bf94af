"""Sink that writes part files, which become visible when their checkpoint completes."""
# ruff: noqa: D102 - the contract documents the methods of a sink

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from penstock.common.pyflink.missing_names import ExplainsMissingMethods
from penstock.common.serialization import BulkWriterFactory, Encoder
from penstock.common.storage_url import Location, StorageUrl
from penstock.connectors.contracts import sink
from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.contracts.committer import Committer, CommitterContext
from penstock.connectors.files.bucket_assigner import BucketAssigner
from penstock.connectors.files.committer import PartFileCommitter
from penstock.connectors.files.listing import place_of
from penstock.connectors.files.local_part_files import LocalPartFiles
from penstock.connectors.files.part_files import PartFiles
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
from penstock.connectors.files.stored.part_files import StoredPartFiles
from penstock.connectors.files.stored.staging_url import StagingUrl
from penstock.connectors.files.writer import BulkFormat, PartFileWriter, RowFormat
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.errors import UnwritablePathError
from penstock.storage.durable_files import make_directory

__all__ = ["FileSink", "OutputFileConfig"]

_Context = sink.WriterContext | sink.PublisherContext | CommitterContext


@dataclass(frozen=True, slots=True)
class _Settings(PartFileSettings):
    bucket_assigner: BucketAssigner = field(
        default_factory=BucketAssigner.date_time_bucket_assigner
    )

    def files(self, context: _Context, step_dir: Path) -> PartFiles[Any]:
        """Return the step's files; ``step_dir`` has the step's name."""
        return _files_at(self.base_path, context, step_dir.name)


def _files_at(base_path: Location, context: _Context, step: str) -> PartFiles[Any]:
    names = context.job, context.job_instance, step, context.attempt
    if isinstance(base_path, StorageUrl):
        return StoredPartFiles(StagingUrl(base_path, *names))
    return LocalPartFiles(StagingDirectory.shared_path(base_path, *names))


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
        return RowFormatBuilder(_Settings(place_of(base_path), RowFormat(encoder), policy))

    @staticmethod
    def for_bulk_format(
        base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory
    ) -> BulkFormatBuilder:
        """Return the builder of a sink that writes a bulk format; files roll at each checkpoint."""
        policy = RollingPolicy.on_checkpoint_rolling_policy()
        return BulkFormatBuilder(_Settings(place_of(base_path), BulkFormat(writer_factory), policy))

    def with_storage_options(self, options: Mapping[str, str]) -> FileSink:
        base_path = self._settings.base_path
        if not isinstance(base_path, StorageUrl):
            return self
        return FileSink(replace(self._settings, base_path=base_path.with_options(options)))

    def paths_on_hosts(self) -> Sequence[Path]:
        base_path = self._settings.base_path
        return () if isinstance(base_path, StorageUrl) else (base_path,)

    def writer(self, context: sink.WriterContext) -> sink.SinkWriter:
        settings, policy = self._settings, self._settings.rolling_policy
        return PartFileWriter(
            context,
            settings.base_path,
            settings.files(context, context.staging_dir),
            settings.part_format,
            settings.bucket_assigner.assigner(),
            policy.part_size if isinstance(policy, DefaultRollingPolicy) else None,
        )

    def publisher(self, context: sink.PublisherContext) -> sink.SinkPublisher:
        settings = self._settings
        if isinstance(settings.base_path, Path):
            try:
                make_directory(settings.base_path)
            except OSError as error:
                reason = error.strerror or str(error)
                raise UnwritablePathError(str(settings.base_path), reason) from error
        return PartFilePublisher(settings, settings.files(context, context.work_dir), context)

    def committer(self, context: CommitterContext) -> Committer:
        step, base_path = context.work_dir.name, self._settings.base_path
        own = self._settings.files(context, context.work_dir)
        # For parts of a snapshot that was taken when the sink had its path elsewhere: those say
        # where they are, and this one's own place is not used.
        other = _elsewhere(base_path, context.storage_options)
        return PartFileCommitter(own, _files_at(other, context, step))


def _elsewhere(base_path: Location, options: Mapping[str, str]) -> Location:
    if isinstance(base_path, StorageUrl):
        return Path(base_path.path).absolute()
    return StorageUrl("s3", "elsewhere", (), options)


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
