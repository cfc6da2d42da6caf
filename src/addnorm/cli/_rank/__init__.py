"""Other questions of `addnorm rank`, one file each: what they print."""
