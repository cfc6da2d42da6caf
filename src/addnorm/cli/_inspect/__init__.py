"""Parts of `addnorm inspect`."""
