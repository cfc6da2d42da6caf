"""Models of others: code and checkpoints that other people wrote.

`hugging_face` (classes of Transformers as tables, loading, saving, patches) below `targets` (a model for a command, with
example inputs) below `foreign` (such models as variants of a study). What a study must know of the last, the base of their
specs, is `addnorm.study.foreign`: a study is defined below training, and a package on both sides of training would close a
circle. `addnorm.hf`, the opposite direction, stays where files that it wrote look for it.
"""
