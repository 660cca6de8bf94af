"""What all errors share: the root, and how a value is shown in a message."""

_LONGEST_VALUE = 200


class Shown(str):
    """The repr of a value that itself may not pickle; showing it twice changes nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Called(Shown):
    """Stands for a record where there is none: a function failed in one of its other methods."""

    __slots__ = ()


def on_record(shown: Shown) -> str:
    """Say where a function failed: on which record, or in which method."""
    return f"in {shown}" if isinstance(shown, Called) else f"on record {shown}"


def show(value: object) -> Shown:
    """Return how a value is shown in a message, cut where it is long."""
    if isinstance(value, Called):
        return value
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    if len(text) > _LONGEST_VALUE:
        text = text[: _LONGEST_VALUE - 1] + "…"
    return Shown(text)


class PenstockError(Exception):
    """Root of all errors raised by penstock."""
