"""Number, text, LaTeX and formula formats."""
