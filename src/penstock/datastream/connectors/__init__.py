"""Sources and sinks of data streams, under PyFlink's module names."""

from typing import TYPE_CHECKING

from penstock.common.pyflink.missing_names import missing_name_getattr
from penstock.connectors.contracts.sink import DeliveryGuarantee, Sink
from penstock.connectors.contracts.source import Source
from penstock.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.connectors.discard import DiscardingSink
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    BulkFormat,
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
from penstock.datastream.connectors.two_phase import (
    AlreadyCommitted,
    AtLeastOnceSink,
    RetryLater,
    TransactionContext,
    TwoPhaseSink,
)

__all__ = [
    "AlreadyCommitted",
    "AtLeastOnceSink",
    "BucketAssigner",
    "BulkFormat",
    "DataGeneratorSource",
    "DeliveryGuarantee",
    "DiscardingSink",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "NumberSequenceSource",
    "OutputFileConfig",
    "RateLimiterStrategy",
    "RetryLater",
    "RollingPolicy",
    "Sink",
    "SocketSource",
    "Source",
    "StreamFormat",
    "TransactionContext",
    "TwoPhaseSink",
]

if not TYPE_CHECKING:  # so that type checkers report misspelled names
    __getattr__ = missing_name_getattr(__name__)
