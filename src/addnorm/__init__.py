"""addnorm: how a Transformer's layers are joined."""
