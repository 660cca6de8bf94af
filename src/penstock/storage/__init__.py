"""Where a job keeps what must survive it: local files, object stores and HDFS, by one contract."""
