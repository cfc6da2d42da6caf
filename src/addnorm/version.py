"""Version of the package, in a module of its own: rooms record it, and may not import the package above them."""

__version__ = "0.3.0"
"""Version of the package.

Example:
    >>> len(addnorm.__version__.split("."))
    3
"""
