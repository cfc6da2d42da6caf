"""Linear algebra of the audit: null spaces, singular values, structured linear maps."""
