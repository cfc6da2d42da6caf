"""What a process that runs or trains a study imports, so that those forked from it need not: preloaded by `warm.py`."""

import rich.live
import tyro
import warm

import addnorm.cli._live_table
import addnorm.cli.run
import addnorm.study.loading

PRELOADED = (rich.live, tyro, warm, addnorm.cli._live_table, addnorm.cli.run, addnorm.study.loading)
