"""Rewriting a model without its redundant parameters, with a certificate."""
