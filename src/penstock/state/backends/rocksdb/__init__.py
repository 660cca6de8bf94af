"""The rocksdb backend: state in RocksDB on each host, SST files in the shared directory."""
