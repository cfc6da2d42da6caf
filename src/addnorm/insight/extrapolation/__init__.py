"""Trained models on longer texts than they were trained on: `addnorm extrapolate`.

    lengths      which lengths, and where the buckets of positions lie
    windows      which held-out tokens: the same for every model
    measure      a model's scores at one length, by position
    switches/    changes at evaluation, without retraining: a room of siblings
    evaluate     one run        recorded   what is kept of it, RUN/extrapolation.json
    extrapolate  a study        summary    over seeds, with verdicts per length

What is compared with what, and why: docs/decisions/0009-extrapolation.md.
"""
