"""Tests of pairs of variants: with shared seeds, and without."""
