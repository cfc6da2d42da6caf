"""Tables, one file per kind of result; each as plain text, CSV and LaTeX."""
