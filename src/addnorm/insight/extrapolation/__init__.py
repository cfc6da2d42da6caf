"""Evaluation of trained models on longer texts than they were trained on: `addnorm.extrapolate`.

    lengths      test lengths and the buckets of positions
    segments     held-out text, the same for every model
    measure      loss and accuracy of a model at one length, by position
    switches/    changes at evaluation, without retraining: a room
    evaluate     all evaluations of one run        run_record   their file, RUN/extrapolation.json
    extrapolate  all runs of a study               summary      statistics over seeds, with verdicts per length
    workers      processes that evaluate runs

The comparisons and their reasons: docs/decisions/0009-extrapolation.md.
"""
