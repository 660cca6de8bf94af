"""The version of penstock, in the module that PyFlink has for its version."""

from penstock import __version__

__all__ = ["__version__"]
