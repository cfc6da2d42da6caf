"""The built-in studies, read as files without importing torch, which `addnorm list` and `addnorm new` do not need."""

from pathlib import Path

import addnorm
from addnorm.errors import UnknownName
from addnorm.study.strict_yaml import read_yaml_file

_STUDIES = Path(addnorm.__file__).parent / "studies"


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
