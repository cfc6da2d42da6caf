"""The numerical method: parameters are moved, outputs measured."""
