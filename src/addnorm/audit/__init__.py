"""Which biases of any PyTorch model cannot matter: proof, certificate and removal. Knows torch, knows none of our
rooms.
"""
