"""Linear algebra: ranks and null spaces, singular values, structured linear maps."""
