"""An audit as text, HTML and SARIF, and the text of its certificate."""
