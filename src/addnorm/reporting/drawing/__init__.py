"""Primitives of drawing: chart geometry for inline SVG, line styles, the style of matplotlib figures."""
