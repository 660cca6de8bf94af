"""Sources and sinks of data streams, under PyFlink's module names."""

from penstock.connectors.sink import Sink
from penstock.connectors.source import Source
from penstock.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.connectors.discard import DiscardingSink
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    FileEnumeratorProvider,
    FileSink,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.connectors.socket import SocketSource

__all__ = [
    "BucketAssigner",
    "DataGeneratorSource",
    "DiscardingSink",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "NumberSequenceSource",
    "OutputFileConfig",
    "RateLimiterStrategy",
    "RollingPolicy",
    "Sink",
    "SocketSource",
    "Source",
    "StreamFormat",
]
