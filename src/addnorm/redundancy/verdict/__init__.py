"""Verdicts: the comparison of both methods' counts, and the finding per parameter."""
