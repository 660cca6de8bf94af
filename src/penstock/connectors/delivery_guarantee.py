"""What a sink promises when the job or the system it writes to fails."""

from __future__ import annotations

from enum import Enum

__all__ = ["DeliveryGuarantee"]


class DeliveryGuarantee(Enum):
    """How often a record may arrive in a job with checkpoints."""

    EXACTLY_ONCE = 0
    """Once, whoever dies when; visible when the checkpoint behind it is completed."""

    AT_LEAST_ONCE = 1
    """Never lost; again if the job is restored."""

    NONE = 2
    """Maybe lost, maybe again."""
