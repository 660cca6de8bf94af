"""What is assumed where a job has no history; measured as docs/models.md describes.

The numbers are those of one machine with two cores and a local disk. They are good for the order
of magnitude of a first interval, which a job's own history soon replaces.
"""

from __future__ import annotations

PERSIST_S = 0.1
"""Seconds to make a checkpoint durable, besides its bytes."""
PERSIST_S_PER_BYTE = 8e-9
"""Seconds per byte written: upload, sync, and reading back."""
BARRIER_S = 0.4
"""Seconds until running micro-batches have ended and the barrier has passed."""
SNAPSHOT_S = 0.001
"""Seconds of the synchronous phase."""
COORDINATION_S = 0.02
"""Seconds for metadata and journal."""
LOST_SHARE_OF_PERSIST = 0.5
"""Of the time in which state is made durable, the share that the job cannot use itself."""
DETECT_S = 1.6
"""Seconds from the last heartbeat to the new driver, if a supervisor sees the death at once."""
REDEPLOY_S = 12.0
"""Seconds to start a driver with Spark."""
REDEPLOY_IN_DRIVER_S = 0.2
"""Seconds to start an attempt in a driver that lives."""
LOAD_S = 0.3
"""Seconds to load state, besides its bytes."""
LOAD_S_PER_BYTE = 7e-10
"""Seconds per byte loaded."""
RESET_SOURCES_S = 0.01
RESET_SINKS_S = 0.01
PROCESSING_S = 1.0
"""Seconds until the step that works most processes records, after sources and sinks were reset."""
CHANGED_PER_RECORD_BYTES = 100.0
"""Bytes of state that one record changes, if nothing is known about its keys."""
TARGET_DURATION_S = 1.0
"""Of a micro-batch, as `penstock.micro-batch.target-duration`; decides how large it may become."""
