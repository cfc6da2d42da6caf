"""Findings about single parameters: the counts of both methods compared, and put into words."""
