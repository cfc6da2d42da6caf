"""Plots: one function per file, `figure(rows) -> Figure`."""
