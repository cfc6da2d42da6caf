"""The static method: constraints on parameter shifts, read off the exported graph."""
