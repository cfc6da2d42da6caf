"""The live page: a study's state, read from its files, on this machine's own address."""
