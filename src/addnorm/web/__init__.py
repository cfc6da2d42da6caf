"""The live site: a study's state, read from its files and served on loopback by default."""
