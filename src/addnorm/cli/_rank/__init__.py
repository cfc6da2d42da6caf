"""Options and texts of `addnorm rank` and `addnorm trend` that no other command has."""
