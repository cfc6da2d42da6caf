"""Where the mechanisms meet: attention, feed-forward, the layer, the model, generation.

Parameters are filled by name: a module with a method `initialise(name, generator)` is called once for each parameter of
its own, with a generator seeded from the model's seed and the parameter's full name. So a variant that adds a parameter
does not shift the others' start.
"""
