"""Analyses of trained models, read from the files of runs."""
