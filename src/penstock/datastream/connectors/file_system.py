"""Files, read and written."""

from typing import TYPE_CHECKING

from penstock.common.missing_names import asked_of
from penstock.connectors.buckets import BucketAssigner
from penstock.connectors.file_sink import FileSink, OutputFileConfig
from penstock.connectors.files import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from penstock.connectors.reader_format import BulkFormat
from penstock.connectors.rolling import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    RollingPolicy,
)
from penstock.connectors.text_lines import StreamFormat

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

if not TYPE_CHECKING:  # a type checker shall find typos
    __getattr__ = asked_of(__name__)
