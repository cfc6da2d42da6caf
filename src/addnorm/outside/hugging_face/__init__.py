"""Models of this library as checkpoints of Hugging Face Transformers, and such checkpoints as models of this library.

`classes` has one file per class: a table of fields and weights that is read in both directions. `recognition` finds the
class that a spec is; `unused` refuses what no table reads; `saving` and `loading` are `addnorm.save_hf` and
`addnorm.load_hf`. Nothing here imports Transformers; `addnorm.hf` does, for models that are none of the classes.
"""
