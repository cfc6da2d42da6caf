"""The built-in studies, read as files without importing torch, which `addnorm list` and `addnorm new` do not need."""

import json
import re
from pathlib import Path
from typing import Any

from addnorm.errors import UnknownName
from addnorm.strict_yaml import read_yaml_file

_STUDIES = Path(__file__).parents[1] / "studies"
_BLANK = """# All fields: addnorm list study-file. Mechanisms: addnorm list residual, addnorm list scores, …

name: "{name}"
about: >-
  The question, in a sentence or two.

# Variants that all others are compared with, and the smallest difference that matters, in nats per token.
references: [base]
margin: 0.005
seeds: [0, 1, 2]

corpus: {{kind: stdlib, max_bytes: 4_000_000}}
tokenizer: bytes
training:
  steps: 200
  batch: 8
  seq: 64
  optimizer: {{kind: adamw, learning_rate: 3e-3}}

# Fields that all variants share.
model: {{preset: base, width: 64, depth: 4, heads: 4, kv_heads: 4, hidden: 128, max_seq: 64}}

# What each variant changes; `training` may differ too.
variants:
  base: {{}}
  mine: {{residual: rezero}}

# Several values of a field: one variant for each.
# grid: {{training.optimizer.learning_rate: [1e-3, 3e-3]}}
"""


SCHEMA = "study-file.json"
"""JSON schema of study files, in this folder; `python docs/study_file.py` writes it from the dataclasses."""


def study_schema() -> dict[str, Any]:
    """The JSON schema of study files."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name(SCHEMA).read_text(encoding="utf-8"))
    return schema


def blank_study(name: str) -> str:
    """The YAML text of a small study to fill in.

    Args:
        name: of the study; `study` in place of one that a study cannot have.
    """
    return _BLANK.format(name=name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) else "study")


def study_names() -> tuple[str, ...]:
    """Names of the built-in studies."""
    return tuple(sorted(path.stem for path in _STUDIES.glob("*.yaml")))


def study_file(name: str) -> Path:
    """The YAML file of a built-in study.

    Raises:
        UnknownName: no such study.
    """
    if name not in study_names():
        raise UnknownName("built-in study", name, study_names())
    return _STUDIES / f"{name}.yaml"


def study_source(name: str) -> str:
    """The YAML text of a built-in study, to copy and edit.

    Raises:
        UnknownName: no such study.
    """
    return study_file(name).read_text(encoding="utf-8")


def study_about(name: str) -> str:
    """The question of a built-in study, in one to three sentences.

    Raises:
        UnknownName: no such study.
    """
    return str(read_yaml_file(study_file(name)).get("about", ""))


def study_profiles(name: str) -> tuple[str, ...]:
    """Names of a built-in study's profiles.

    Raises:
        UnknownName: no such study.
    """
    return tuple(read_yaml_file(study_file(name)).get("profiles") or {})
