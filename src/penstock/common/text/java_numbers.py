"""Formats floating-point numbers as Java does."""

from __future__ import annotations

import math
import struct

_MOST_DIGITS_OF_FLOAT = 9


def double_text(number: float) -> str:
    """Format a number as ``Double.toString`` does since Java 19: ``1.0E10``, ``NaN``."""
    if not math.isfinite(number) or number == 0:
        return _special_text(number)
    return _java_text(repr(number) if number > 0 else repr(-number), number)


def float_text(number: float) -> str:
    """Round a number to 32 bits and format it as ``Float.toString`` does since Java 19."""
    rounded = round_to_float(number)
    if not math.isfinite(rounded) or rounded == 0:
        return _special_text(rounded)
    magnitude = abs(rounded)
    shortest = next(
        text
        for digits in range(_MOST_DIGITS_OF_FLOAT)
        if round_to_float(float(text := f"{magnitude:.{digits}e}")) == magnitude
    )
    return _java_text(shortest, rounded)


def round_to_float(number: float) -> float:
    """Return the 32-bit number nearest to a 64-bit one."""
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return math.copysign(math.inf, number)
    return float(rounded)


def _special_text(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    sign = "-" if math.copysign(1, number) < 0 else ""
    return sign + ("0.0" if number == 0 else "Infinity")


def _java_text(shortest: str, number: float) -> str:
    """Format the shortest decimal that parses to the number."""
    digits, exponent = _digits_and_exponent(shortest)
    if len(digits) == 1:
        # Java never prints fewer than two digits, and chooses the nearest two: 4.9E-324.
        digits, exponent = _digits_and_exponent(f"{abs(number):.1e}", keep=2)
    sign = "-" if number < 0 else ""
    if not -3 <= exponent < 7:
        return f"{sign}{digits[0]}.{digits[1:]}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits.rstrip('0')}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"


def _digits_and_exponent(text: str, keep: int = 1) -> tuple[str, int]:
    """Split ``123.4e5`` into ``1234`` and the exponent of its first digit."""
    mantissa, _, power = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    leading = (whole + fraction).lstrip("0")
    exponent = int(power or 0) + len(whole) - 1 - (len(whole + fraction) - len(leading))
    return leading.rstrip("0").ljust(keep, "0"), exponent
