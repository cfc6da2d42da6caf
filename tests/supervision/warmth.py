"""What a process that runs or trains a study imports, so that those forked from it need not: preloaded by `warm.py`."""

import rich.live
import tyro
import warm

import addnorm.cli._progress
import addnorm.cli.run
import addnorm.study.loading

PRELOADED = (rich.live, tyro, warm, addnorm.cli._progress, addnorm.cli.run, addnorm.study.loading)
