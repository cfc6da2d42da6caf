"""Patches: mechanisms of this library inside a trained model of others, beginning where the model is.

`attach` is `addnorm.patch`; `joints` finds where branches read and write the stream; `stream` and `attention` put mechanisms
there; `norms` replaces norms; `cache` keeps the positions that they read; `check` measures that nothing has changed yet;
`adapter` writes and reads a patch as a file.
"""
