"""Parts of `addnorm audit`."""
