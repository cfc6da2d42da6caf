"""The structural method: linear actions on the values of the exported graph, and the equations between them."""
