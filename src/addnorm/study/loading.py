"""Loading of studies: by the name of a built-in one, from a YAML file, or from a Python function."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from addnorm.data.tokenizers import TokenizerSpec
from addnorm.errors import InputError, did_you_mean
from addnorm.model.presets import PRESETS
from addnorm.strict_yaml import full_width_hint, lines_of, read_yaml_file
from addnorm.study.built_in import study_file, study_names
from addnorm.study.chosen_pairs import choose_pairs
from addnorm.study.decoding import UNREADABLE, construct, read
from addnorm.study.definition import AnyModel, Study, Training
from addnorm.study.encoding import encode
from addnorm.study.foreign import ForeignSpec
from addnorm.study.grid import expand_grid, require_distinct
from addnorm.study.origin import with_runs_as_specs
from addnorm.study.overlay import Setting, apply_settings, lay_over_study, parse_setting
from addnorm.study.plugins import load_plugins
from addnorm.study.points import expand_points, read_tuning, tuning_content
from addnorm.study.problems import Problems, nearest, shown
from addnorm.study.variants import Variant, read_training, training_content
from addnorm.user_code import call, import_function

_PROFILE_FIELDS = (
    *(field.name for field in fields(Study) if field.name not in ("variant_training", "own_vocab", "titles", "pairs")),
    "model",
    "grid",
)
FILE_FIELDS = (*_PROFILE_FIELDS, "profiles", "default_profile")
"""Names that a study file may set."""


def load_study(path_or_name: str | Path, *, profile: str | None = None, settings: Sequence[str] = ()) -> Study:
    """Load a study and its plugins; every name is resolved and every field checked.

    Example:
        >>> study = addnorm.load_study("residual-scores", settings=["training.steps=200", "seeds=[0, 1]"])
        >>> study.training.steps, study.seeds
        (200, (0, 1))

    Args:
        path_or_name: the name of a built-in study, a `.yaml` file, a `.py` file (its function `study`, or `file.py:function`)
            or `module:function`.
        profile: a profile of the file; None for its default profile.
        settings: changes such as `training.steps=200` with values in YAML, applied last.

    Returns:
        The study.

    Raises:
        InputError: no such study or profile, or the study is wrong; the message has the file and the path of every problem.
    """
    name = str(path_or_name)
    changes = [parse_setting(text) for text in settings]
    if (file := _yaml_file(name)) is not None:
        return _load_file(*file, profile, changes)
    if name.endswith(".py") or ":" in name:
        return _load_python(name, profile, changes)
    preset = f" {name} is a preset: write model: {{preset: {name}}} in a study file." if name in PRESETS else ""
    raise InputError(
        f"no study {name!r}.{preset}{did_you_mean(name, study_names())} Known: {', '.join(study_names())}. "
        "Give a study of your own as a file (.yaml, .py) or as module:function."
    )


def _yaml_file(name: str) -> tuple[Path, str] | None:
    """The YAML file of a study, and what messages call it; None for a study in Python, or an unknown name."""
    if name.endswith((".yaml", ".yml")):
        return Path(name), name
    return (study_file(name), f"study '{name}'") if name in study_names() else None


def located(path_or_name: str | Path, path: str, *, profile: str | None = None, settings: Sequence[str] = ()) -> str:
    """The place of a field for a message about a study that is loaded: `mine.yaml: $.tune (line 9)`.

    Args:
        path_or_name, profile, settings: as for `load_study`.
        path: the field's path, such as `$.tune`.
    """
    name = str(path_or_name)
    if (source := _yaml_file(name)) is None:
        return f"{name}: {path}"
    file, where = source
    return f"{where}: {_locator(file, profile, [parse_setting(text) for text in settings])(path)}"


def _load_file(file: Path, where: str, profile: str | None, settings: Sequence[Setting]) -> Study:
    content = _read_file(file, where)
    profiles = content.pop("profiles", None) or {}
    default = content.pop("default_profile", None)
    field = "$.default_profile: " if profile is None else ""
    profile = default if profile is None else profile
    if profile is not None:
        if not isinstance(profile, str) or profile not in profiles:
            raise InputError(f"{where}: {field}no profile {shown(profile)}{nearest(profile, profiles)}")
        where += f", profile {profile}"
        content = lay_over_study(content, profiles[profile], where)
    locate = _locator(file, profile, settings)
    where = _with_settings(where, settings)
    if settings:
        content = apply_settings(content, settings)
    return _decode_study(content, file.parent, where, Problems(where, locate))


def _locator(file: Path, profile: str | None, settings: Sequence[Setting]) -> Callable[[str], str]:
    """A function that adds the line of the file to the path of a problem; the file is read when it is first called."""

    def locate(path: str) -> str:
        # A line of the file would be a wrong place for a value of the command line, and an axis may be partly from
        # each.
        if any({"grid", "tune"} & set(setting.names) for setting in settings):
            return path  # the value may come from the command line
        lines = lines_of(file.read_text(encoding="utf-8"))
        line = lines.get(f"$.profiles.{profile}{path[1:]}", lines.get(path))
        return path if line is None else f"{path} (line {line})"

    return locate


def _load_python(name: str, profile: str | None, settings: Sequence[Setting]) -> Study:
    if profile is not None:
        raise InputError(
            f"{name}: expected no profile for a study in Python, got {profile!r}. Write one function per profile."
        )
    for setting in settings:
        if setting.names[0] == "model":
            raise InputError(
                f"--set {setting.text}: a study in Python has no shared model. Set variants.NAME.… instead."
            )
    # A study in Python goes through the same decoding as a file: encoded, laid under the settings, decoded. Otherwise
    # --set would need a second implementation, and checks made for files would not hold for Python.
    reference = f"{name}:study" if name.endswith(".py") else name
    function, module = import_function(
        reference, "study file", "Give a study as a built-in name, a .yaml or .py file, or module:function."
    )
    study = call(function, name, module)
    if not isinstance(study, Study):
        raise InputError(f"{name}: expected a function that returns a Study, got {shown(study)}.")
    folder = Path(module.__file__ or ".").resolve().parent
    # The content of a study in Python has every field; the vocab of a model is its own where the study says so.
    set_here = (setting.names[1] for setting in settings if setting.names[0] == "variants" and "vocab" in setting.names)
    where, own_vocab = _with_settings(name, settings), (*study.own_vocab, *set_here)
    return _decode_study(apply_settings(_as_file(study), settings), folder, where, Problems(where), own_vocab)


def _as_file(study: Study) -> dict[str, Any]:
    """A study as the content of a study file, where a variant's training stands with its model."""
    content: dict[str, Any] = encode(study)
    for name in ("own_vocab", "pairs"):
        content.pop(name, None)
    content["training"] = training_content(study.training)
    for name in content.pop("variant_training"):
        content["variants"][name]["training"] = training_content(study.training_of(name))
    for name, title in content.pop("titles").items():
        content["variants"][name]["title"] = title
    if study.tune is not None:
        content["tune"] = tuning_content(study.tune)
        for name, axes in study.tune.own.items():
            content["variants"][name]["tune"] = {"over": axes}
    return content


def _read_file(file: Path, where: str) -> dict[str, Any]:
    if file.is_dir():
        raise InputError(
            f"study file {file}: expected a file, got a folder. Give a .yaml or .py file, or a built-in study's name."
        )
    if not file.is_file():
        raise InputError(
            f"study file {file}: no such file (looked in {Path.cwd()}).{did_you_mean(file.stem, study_names())} "
            f"Built-in studies are given by name alone: {', '.join(study_names())}."
        )
    content = read_yaml_file(file)
    problems = Problems(where)
    if not isinstance(content, dict):
        hint = full_width_hint(content) if isinstance(content, str) else ""
        hint = hint or " Begin with the file that addnorm new --blank writes."
        raise InputError(f"{where}: $: expected a mapping, got {shown(content)}.{hint}")
    _check_names(content, FILE_FIELDS, "$", problems)
    profiles = content.get("profiles")
    if isinstance(profiles, Mapping):
        for name, profile in profiles.items():
            if isinstance(profile, Mapping):
                _check_names(profile, _PROFILE_FIELDS, f"$.profiles.{name}", problems)
            else:
                problems.add(f"$.profiles.{name}", f"expected a mapping, got {shown(profile)}.")
    elif profiles is not None:
        problems.add("$.profiles", f"expected a mapping from names to profiles, got {shown(profiles)}.")
    problems.raise_any()
    return content


def _check_names(content: Mapping[Any, object], known: Sequence[str], path: str, problems: Problems) -> None:
    for name in content:
        if name not in known:
            problems.add(path, f"Study has no field {shown(name)}{nearest(name, known)}")


def _decode_study(
    content: Mapping[str, Any], folder: Path, where: str, problems: Problems, own_vocab: Collection[str] | None = None
) -> Study:
    """Decode the content of a study file.

    Args:
        content: the content.
        folder: that paths are relative to.
        where: the file, for messages.
        problems: of this file; none yet.
        own_vocab: variants that keep their `vocab`; None for those that have the field.
    """
    # The order of decoding is the order in which parts need each other: plugins define names that any other field may
    # use; runs `from` which variants begin become specs; the shared training lies below the variants' own; the grid
    # needs decoded variants; references and tuning need the grid's names. Problems are collected as long as the next
    # part can still be read without the part that is wrong, so that one message shows as many as possible.
    hints = get_type_hints(Study)
    plugins = read(hints["plugins"], content.get("plugins", ()), "$.plugins", problems)
    problems.raise_any()
    # Plugins are loaded first, because any other field may name a sibling that they define.
    try:
        files = load_plugins(plugins, folder)
    except InputError as error:
        raise InputError(f"{where}: $.plugins: {error}") from error
    _check_names(content, _PROFILE_FIELDS, "$", problems)
    content = with_runs_as_specs(content, folder, problems)
    problems.raise_any()
    names = [
        name
        for name in hints
        if name in _PROFILE_FIELDS and name not in ("plugins", "variants", "training", "tune") and name in content
    ]
    decoded = {name: read(hints[name], content[name], f"$.{name}", problems) for name in names}
    for room in ("corpus", "tokenizer"):
        if room in decoded:
            decoded[room] = _beside_the_file(decoded[room], folder, f"$.{room}", problems)
    if "name" not in content:
        problems.add("$", "Study needs the field 'name' (a text).")
    training = read_training(content["training"], "$.training", problems) if "training" in content else Training()
    grid = expand_grid(content, None if training is UNREADABLE else training, problems)
    variants = grid.variants
    tune = read_tuning(content, grid, decoded.get("seeds", Study.seeds), problems)
    problems.raise_any()
    decoded |= choose_pairs(grid, content, decoded, problems)
    models, references = _located_models(variants, folder, files, problems)
    problems.raise_any()
    if "tokenizer" not in content and (theirs := _their_tokenizer(models)) is not None:
        decoded["tokenizer"] = theirs
    study: Study = construct(
        lambda: Study(
            **decoded,
            training=_located(training, folder),
            variants=models,
            variant_training={
                name: _located(variant.training, folder)
                for name, variant in variants.items()
                if variant.training is not None
            },
            own_vocab=tuple(
                name
                for name, variant in variants.items()
                if (variant.has_own_vocab if own_vocab is None else name.partition(", ")[0] in own_vocab)
            ),
            titles={name: variant.title for name, variant in variants.items() if variant.title is not None},
            tune=tune,
            plugins=tuple(dict.fromkeys((*files, *references))),
        ),
        "$",
        problems,
    )
    problems.raise_any()
    require_distinct(study, grid, problems)
    if study.tune is not None:
        expand_points(study, problems)
    problems.raise_any()
    return study


def _beside_the_file(spec: Any, folder: Path, place: str, problems: Problems) -> Any:
    """A corpus or tokenizer whose files are looked for beside the study file, unless the working folder has them."""
    for name in ("path", "held_out_path"):
        given = getattr(spec, name, None)
        if not isinstance(given, str) or not (beside := folder / given).exists():
            continue
        if not Path(given).exists():
            spec = replace(spec, **{name: str(beside.resolve())})
        elif not beside.samefile(given):
            # The same command in another folder would train on another text.
            problems.add(
                f"{place}.{name}",
                f"expected one file, got {Path(given).resolve()} in the working folder and {beside.resolve()} beside the study "
                "file. Give the whole path.",
            )
    return spec


def _located(training: Training, folder: Path) -> Training:
    """A training whose weights at the start have an absolute path."""
    if training.init_from is None:
        return training
    return replace(training, init_from=str((folder / Path(training.init_from).expanduser()).resolve()))


def _located_models(
    variants: Mapping[str, Variant], folder: Path, plugins: Sequence[str], problems: Problems
) -> tuple[dict[str, AnyModel], list[str]]:
    """The models, those of others with absolute paths, and references to the user's code that they need."""
    models, references = dict[str, AnyModel](), list[str]()
    for name, variant in variants.items():
        models[name] = variant.model
        if isinstance(variant.model, ForeignSpec):
            try:
                models[name], needed = variant.model.located(folder, plugins)
                references += needed
            except InputError as error:
                problems.add(f"$.variants.{name}", str(error))
    return models, references


def _their_tokenizer(models: Mapping[str, AnyModel]) -> TokenizerSpec | None:
    """The tokenizer of the first model that was trained with one."""
    tokenizers = (model.tokenizer() for model in models.values() if isinstance(model, ForeignSpec))
    return next((tokenizer for tokenizer in tokenizers if tokenizer is not None), None)


def _with_settings(where: str, settings: Sequence[Setting]) -> str:
    return ", ".join((where, *(f"--set {setting.text}" for setting in settings)))
