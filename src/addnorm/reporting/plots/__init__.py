"""Figures from plain rows: one file per figure, each with `figure(rows, language) -> Figure`. matplotlib is imported on use.

Every line differs from its neighbours by its dashes and markers as well as by its colour, so a grey copy can be read.
"""
