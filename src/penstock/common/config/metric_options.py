"""Options of metrics: which properties of RocksDB are read, as in Flink."""

from __future__ import annotations

from penstock.common.config.option_kinds import BOOLEAN
from penstock.common.config_options import ConfigOption, read
from penstock.common.configuration import Configuration

_PREFIX = "state.backend.rocksdb.metrics."
_PROPERTIES = {
    "estimate-num-keys": "the estimated number of keys",
    "estimate-live-data-size": "the estimated bytes of the newest values",
    "total-sst-files-size": "the bytes of all SST files",
    "live-sst-files-size": "the bytes of the SST files of the newest version",
    "cur-size-all-mem-tables": "the bytes of memtables that are not flushed",
    "estimate-table-readers-mem": "the bytes of memory for reading SST files, without the cache",
    "block-cache-capacity": "the bytes of the block cache",
    "block-cache-usage": "the bytes in use of the block cache",
    "block-cache-pinned-usage": "the bytes that are pinned in the block cache",
    "compaction-pending": "whether a compaction is due",
    "num-running-compactions": "the number of running compactions",
    "estimate-pending-compaction-bytes": "the estimated bytes that compactions have to rewrite",
}

ROCKSDB_METRICS: dict[str, ConfigOption[bool]] = {
    name: ConfigOption(f"{_PREFIX}{name}", BOOLEAN, False, f"RocksDB metric: {what}.")
    for name, what in _PROPERTIES.items()
}
"""By the name of the property in RocksDB, without `rocksdb.`."""


def rocksdb_metrics(configuration: Configuration) -> tuple[str, ...]:
    """Return the properties that are read, without `rocksdb.`."""
    return tuple(name for name, option in ROCKSDB_METRICS.items() if read(configuration, option))
