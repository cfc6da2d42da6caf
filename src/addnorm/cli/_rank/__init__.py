"""What `addnorm rank` and `addnorm trend` share with no other command."""
