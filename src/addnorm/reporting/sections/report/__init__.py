"""Sections that reports alone have."""
