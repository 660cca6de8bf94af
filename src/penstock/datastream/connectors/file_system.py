"""File source and file sink."""

from typing import TYPE_CHECKING

from penstock.common.pyflink.missing_names import missing_name_getattr
from penstock.connectors.files.bucket_assigner import BucketAssigner
from penstock.connectors.files.rolling_policy import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    RollingPolicy,
)
from penstock.connectors.files.sink import FileSink, OutputFileConfig
from penstock.connectors.files.source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from penstock.connectors.formats.reader_format import BulkFormat
from penstock.connectors.formats.text_lines import StreamFormat

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "DefaultRollingPolicy",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]

if not TYPE_CHECKING:  # so that type checkers report misspelled names
    __getattr__ = missing_name_getattr(__name__)
