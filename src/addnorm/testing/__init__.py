"""The contract and the laws that every mechanism keeps, built-in or a user's own."""
