"""Studies by name, by file, or by a Python function."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from addnorm.errors import InputError, did_you_mean
from addnorm.study.built_in import study_about, study_file, study_names, study_profiles, study_source
from addnorm.study.codec import construct, encode, read
from addnorm.study.definition import Study
from addnorm.study.overlay import Setting, apply_settings, lay_over_study, parse_setting
from addnorm.study.plugins import load_plugins
from addnorm.study.problems import Problems, nearest, shown
from addnorm.study.python_study import call_study
from addnorm.study.strict_yaml import read_yaml_file
from addnorm.study.variants import read_variants

__all__ = ["load_study", "profile_names", "study_about", "study_names", "study_source"]

_PROFILE_FIELDS = (*(field.name for field in fields(Study)), "model")
_FILE_FIELDS = (*_PROFILE_FIELDS, "profiles", "default_profile")


def load_study(path_or_name: str | Path, *, profile: str | None = None, settings: Sequence[str] = ()) -> Study:
    """A study with its plugins loaded, every name resolved and every field checked.

    Args:
        path_or_name: a built-in study's name, a `.yaml` file, a `.py` file (its function `study`, or `file.py:function`)
            or `module:function`.
        profile: one of the file's profiles; None for its default one.
        settings: changes such as `training.steps=200`, values in YAML; they come last.

    Raises:
        InputError: no such study or profile, or the study is wrong; the message names file and path of every mistake.
    """
    given = str(path_or_name)
    changes = [parse_setting(text) for text in settings]
    if given.endswith((".yaml", ".yml")):
        return _load_file(Path(given), given, profile, changes)
    if given.endswith(".py") or ":" in given:
        return _load_python(given, profile, changes)
    if given not in study_names():
        raise InputError(
            f"no study {given!r}.{did_you_mean(given, study_names())} Known: {', '.join(study_names())}. "
            "A study of your own is given as a file (.yaml, .py) or as module:function."
        )
    return _load_file(study_file(given), f"study '{given}'", profile, changes)


def profile_names(path_or_name: str | Path) -> tuple[str, ...]:
    """Names of the profiles that a built-in study or a study file offers.

    Raises:
        InputError: no such study, or it is not readable.
    """
    given = str(path_or_name)
    if given in study_names():
        return study_profiles(given)
    return tuple(_content(Path(given), given).get("profiles") or {})


def _load_file(file: Path, where: str, profile: str | None, settings: Sequence[Setting]) -> Study:
    content = _content(file, where)
    profiles = content.pop("profiles", None) or {}
    default = content.pop("default_profile", None)
    profile = default if profile is None else profile
    if profile is not None:
        if not isinstance(profile, str) or profile not in profiles:
            raise InputError(f"{where}: no profile {shown(profile)}{nearest(profile, profiles)}")
        where += f", profile {profile}"
        content = lay_over_study(content, profiles[profile], where)
    return _study(apply_settings(content, settings), file.parent, _with_settings(where, settings))


def _load_python(given: str, profile: str | None, settings: Sequence[Setting]) -> Study:
    if profile is not None:
        raise InputError(f"{given}: a study in Python has no profiles, got {profile!r}. Write a function for each.")
    for setting in settings:
        if setting.names[0] == "model":
            raise InputError(
                f"--set {setting.text}: a study in Python has no shared model. Set variants.NAME.… instead."
            )
    study, folder = call_study(given)
    return _study(apply_settings(encode(study), settings), folder, _with_settings(given, settings))


def _content(file: Path, where: str) -> dict[str, Any]:
    if file.is_dir():
        raise InputError(f"study file {file} is a folder. Give a .yaml or .py file, or a built-in study's name.")
    if not file.is_file():
        raise InputError(
            f"study file {file} does not exist (looked in {Path.cwd()}).{did_you_mean(file.stem, study_names())} "
            f"Built-in studies go by name alone: {', '.join(study_names())}."
        )
    content = read_yaml_file(file)
    problems = Problems()
    if not isinstance(content, dict):
        raise InputError(f"{where}: $: a study must be a mapping, got {shown(content)}.")
    _check_names(content, _FILE_FIELDS, "$", problems)
    profiles = content.get("profiles")
    if isinstance(profiles, Mapping):
        for name, profile in profiles.items():
            if isinstance(profile, Mapping):
                _check_names(profile, _PROFILE_FIELDS, f"$.profiles.{name}", problems)
            else:
                problems.add(f"$.profiles.{name}", f"must be a mapping, got {shown(profile)}.")
    elif profiles is not None:
        problems.add("$.profiles", f"must be a mapping of names to profiles, got {shown(profiles)}.")
    problems.raise_any(where)
    return content


def _check_names(content: Mapping[Any, object], known: Sequence[str], path: str, problems: Problems) -> None:
    for name in content:
        if name not in known:
            problems.add(path, f"Study has no field {shown(name)}{nearest(name, known)}")


def _study(content: Mapping[str, Any], folder: Path, where: str) -> Study:
    problems = Problems()
    hints = get_type_hints(Study)
    plugins = read(hints["plugins"], content.get("plugins", ()), "$.plugins", problems)
    problems.raise_any(where)
    # Before anything else is read: what the plugins bring may be named anywhere below.
    try:
        files = load_plugins(plugins, folder)
    except InputError as error:
        raise InputError(f"{where}: $.plugins: {error}") from error
    _check_names(content, _PROFILE_FIELDS, "$", problems)
    plain = [name for name in hints if name not in ("plugins", "variants")]
    given = {name: read(hints[name], content[name], f"$.{name}", problems) for name in plain if name in content}
    if "name" not in content:
        problems.add("$", "Study needs the field 'name' (text).")
    variants = read_variants(content.get("model"), content.get("variants"), problems)
    problems.raise_any(where)
    study: Study = construct(lambda: Study(**given, variants=variants, plugins=files), "$", problems)
    problems.raise_any(where)
    return study


def _with_settings(where: str, settings: Sequence[Setting]) -> str:
    return ", ".join((where, *(f"--set {setting.text}" for setting in settings)))
