"""The folders of tests that are about shapes."""

SHAPE_FOLDERS = ("contracts", "equivalence", "golden", "model", "shapes")
"""Folders whose tests are about shapes: they run with the shape checker, but for those marked `compiled` or `plain`."""
