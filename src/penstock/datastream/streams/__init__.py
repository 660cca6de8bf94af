"""The classes of streams, besides DataStream and KeyedStream, and their helpers."""
