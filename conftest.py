"""Every Python block of the readmes and the guides is run as a test."""

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README*.md", "docs/guide/*.md"],
).pytest()
