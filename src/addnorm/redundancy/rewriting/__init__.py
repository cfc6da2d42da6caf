"""Rewrites of a model: removal, canonical form and transfer, with a certificate."""
