"""The model: attention and feed-forward branches, layers, the forward pass and its trace, presets, generation.

Parameters are filled by name: a module with a method `initialise(name, generator)` is called once for each parameter of
its own, with a generator seeded from the model's seed and the parameter's full name. A variant that adds a parameter
therefore leaves the initial values of all others as they are.
"""
