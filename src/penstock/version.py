"""Which penstock this is, where PyFlink tells which PyFlink it is."""

from penstock import __version__

__all__ = ["__version__"]
