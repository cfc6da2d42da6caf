"""The parts of `addnorm audit` about all parameters: counts, representatives, and distances between models."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addnorm.cli._text import print_json
from addnorm.errors import InputError
from addnorm.words import spoken, translated

if TYPE_CHECKING:
    from torch import nn

    from addnorm.insight.rounded_loss import RoundedLoss
    from addnorm.outside.targets import Target
    from addnorm.symmetry.bases.representative import Representative, WeightDistance


def about_all_parameters(options: Any, defaults: Any, resolve: "Callable[..., Target]", width: int) -> int:
    """Run `addnorm audit` with --all, --canonical or --quantise-ready. Returns the exit code.

    Args:
        options: of `addnorm audit`.
        defaults: the options that nobody set.
        resolve: from options and a name to the target.
        width: of the screen.

    Raises:
        InputError: there are other options, or two of the three.
    """
    from addnorm.redundancy.execution.memory import budget_bytes, needed_bytes
    from addnorm.symmetry.bases.certificate import BYTES

    given = {
        "target": None,
        "config": None,
        "inputs": None,
        "observe": "logits",
        "plugin": (),
        "memory": None,
        "text": None,
        "training": False,
    }
    alone = replace(options, **given, all=False, json=False, canonical=None, quantise_ready=None, force=False)
    wanted = [options.all, options.canonical is not None, options.quantise_ready is not None]
    if alone != defaults or sum(wanted) != 1 or (options.training and not options.all):
        raise InputError(
            "expected no options beside --all, --canonical or --quantise-ready but --config, --inputs, --observe, --memory, "
            "--plugin, --text, --force, --json and, with --all, --training, and one of the three at a time."
        )
    name = str(options.target)
    memory = budget_bytes(options.memory)
    if options.quantise_ready is None:
        # Targets are measured by what an audit needs; a certificate alone needs less.
        memory = memory * needed_bytes(1) // BYTES
    target = resolve(options, name, memory=memory)
    if options.all:
        return print_counts(target, options, width=width)
    return write_representative(
        target,
        name,
        options.canonical or options.quantise_ready,
        options.observe,
        quantise=options.quantise_ready is not None,
        as_json=options.json,
        force=options.force,
        config=options.config or "",
        text=options.text,
    )


def print_counts(target: "Target", options: Any, *, width: int) -> int:
    """Count the directions of a model's parameters that change nothing: both methods for small models, the structural one at
    any size for others. Returns the exit code."""
    import addnorm
    from addnorm.cli._progress import ProgressReport
    from addnorm.symmetry.counting import LARGEST
    from addnorm.symmetry.text import text

    observe, as_json = options.observe, options.json
    whole = _on_meta(target, options.config or "") if target.shrunk else target.model
    if target.shrunk or sum(each.numel() for each in whole.parameters() if each.is_floating_point()) > LARGEST:
        if options.training:
            raise InputError(
                f"expected a model of at most {LARGEST} numbers beside --training, got a larger one, which is counted in "
                "evaluation mode. Leave --training out, or give a configuration of the same class with small widths."
            )
        return _print_whole(target, whole, observe, as_json=as_json)
    with ProgressReport("parts", shown=not as_json) as progress:
        symmetries = addnorm.symmetries(
            target.model,
            target.inputs,
            observe=observe,
            training=options.training,
            on_progress=lambda stage, done, total: progress.done(done, total, stage),
        )
    content = {**symmetries.to_json(), "target": target.to_json()}
    print_json(content) if as_json else print(text(content, width=width), end="")
    return 1 if symmetries.refuted else 0


def _on_meta(target: "Target", config: str) -> "nn.Module":
    """The whole model of a target that does not fit into memory, without numbers."""
    import json

    import torch

    cls: Any = type(target.model)
    if target.kind == "checkpoint":
        settings = cls.config_class.from_pretrained(target.name)
    else:
        settings = cls.config_class(**(json.loads(config) if config else {}))
    with torch.device("meta"):
        made: nn.Module = cls(settings).eval()
    return made


def _print_whole(target: "Target", whole: "nn.Module", observe: Any, *, as_json: bool) -> int:
    import torch
    from torch.utils._pytree import tree_map

    from addnorm.symmetry.bases.representative import freedom_of, random_moves

    parameters = sum(each.numel() for each in whole.parameters() if each.is_floating_point())
    device = next(whole.parameters()).device
    inputs = tree_map(lambda each: each.to(device) if isinstance(each, torch.Tensor) else each, target.inputs)
    content: dict[str, Any] = {"target": target.to_json(), "parameters": parameters}
    if device.type == "meta":
        content["families"] = freedom_of(whole, inputs, observe=observe).sizes()
    else:
        moved = random_moves(whole, inputs, observe=observe)
        content |= moved.to_json()
    content["redundant"] = sum(content["families"].values())
    if as_json:
        print_json(content)
    else:
        counts = (
            f"{content['parameters']} numbers, at least {content['redundant']} directions of them change nothing "
            "(the graph at full size, without a Jacobian)"
        )
        print(f"{translated(counts)}\n\n{_sizes(content['families'])}")
        if "certificate" in content:
            print("\n" + _certified("all families moved at random at once", content["certificate"]))
        else:
            print("\n" + translated("Counted on the meta device: no weight was read and no move was made."))
    return 0 if content.get("certificate", {"passed": True})["passed"] else 1


def write_representative(
    target: "Target",
    name: str,
    path: Path,
    observe: Any,
    *,
    quantise: bool,
    as_json: bool,
    force: bool,
    config: str = "",
    text: Path | None = None,
) -> int:
    """Write the canonical or the quantise-ready representative. Returns the exit code."""
    from addnorm.insight.rounded_loss import rounded_loss, text_of
    from addnorm.outside.targets.checkpoint_folder import require_checkpoint_class
    from addnorm.symmetry.bases.representative import canonicalised, quantise_ready_model

    is_folder = path.is_dir() or not path.suffix
    if is_folder:
        require_checkpoint_class(target.model, path)
    if target.shrunk:
        raise InputError(f"expected a target that fits into memory, got {name}, which fits only with {target.shrunk}.")
    # Before the analysis, which takes long: a text that cannot be read is said at once.
    held_out = text_of(target, text) if quantise else None
    make = quantise_ready_model if quantise else canonicalised
    made = make(target.model, target.inputs, observe=observe)
    loss: RoundedLoss | None = None
    if held_out is not None:
        loss = rounded_loss(target.model, made.model, target.inputs, held_out, made.certificate)
    passed = made.certificate.passed and (loss is None or loss.passed)
    if passed or force:
        _write(target, name, made, path, is_folder=is_folder, config=config)
    content = {**made.to_json(), "target": target.to_json(), "written": passed or force}
    if quantise:
        content["certificate"] |= {"passed": passed, "held_out": None if loss is None else loss.to_json()}
    if as_json:
        print_json(content)
    else:
        print(_certified(f"quantise-ready: {made.choice}" if quantise else "canonical", content["certificate"]))
        print(_sizes(content["families"]))
        for family, names in made.stays.items():
            print(spoken()("representative.stays", family=translated(family), names=", ".join(names)))
        if quantise:
            _print_errors(made, loss)
        written = "written" if content["written"] else "not written, because the certificate failed"
        print(f"\n{path}: {translated(written)}")
    return 0 if passed else 1


def _print_errors(made: "Representative", loss: "RoundedLoss | None") -> None:
    """Print what rounding costs, before and after."""
    assert made.before is not None
    assert made.after is not None
    print(
        "\n"
        + translated("error of weights rounded per row, and of the outputs on the example inputs, before and after")
    )
    for bits in made.before.weights:
        one, other = made.before, made.after
        weights = f"weights {one.weights[bits]:.4f} -> {other.weights[bits]:.4f}"
        print(translated(f"    int{bits}: {weights}, outputs {one.outputs[bits]:.4f} -> {other.outputs[bits]:.4f}"))
    t = spoken()
    if loss is None:
        print(t("rounding.no_text"))
        return
    print("\n" + t("rounding.heading", tokens=loss.tokens, text=loss.text))
    for kind, before in loss.before.items():
        print(f"    {kind}: {before:.4f} -> {loss.after[kind]:.4f}")
    if not loss.passed:
        print(t("rounding.changed", bound=loss.bound))


def _write(target: "Target", name: str, made: "Representative", path: Path, *, is_folder: bool, config: str) -> None:
    from addnorm.outside.targets.checkpoint_folder import write_checkpoint
    from addnorm.redundancy.rewriting.stripped_file import write_stripped

    if is_folder:
        source = Path(name) if target.kind == "checkpoint" else None
        write_checkpoint(made.model, target.model, [], path, source)
    else:
        names: dict[str, tuple[str, ...]] = {"removed": (), "zeroed": (), "changed": (), "float32": ()}
        write_stripped(made.model, path, names, target=name, config=config)


def _sizes(families: Mapping[str, int]) -> str:
    return "\n".join(f"{size:12}  {translated(name)}" for name, size in families.items())


def _certified(title: str, certificate: Mapping[str, Any]) -> str:
    return translated(
        f"{title}: {'certified' if certificate['passed'] else 'CERTIFICATE FAILED'}, largest difference "
        f"{certificate['exact']:.1e} in float64, {certificate['stored']:.1e} as stored (rounding of the original "
        f"{certificate['rounding']:.1e}), {certificate['inputs']} inputs"
    )


def distance(one: "Target", other: "Target", observe: Any) -> "WeightDistance | None":
    """The distance of two models' canonical weights; None where their parameters differ, or a graph is not exported."""
    from addnorm.symmetry.bases.representative import equal_up_to

    shapes = [{name: each.shape for name, each in target.model.named_parameters()} for target in (one, other)]
    if shapes[0] != shapes[1]:
        return None
    try:
        return equal_up_to(one.model, other.model, one.inputs, observe=observe)
    except InputError:  # the comparison of outputs above stands alone
        return None


def distance_text(weights: "WeightDistance", *, same: bool) -> str:
    """Say how far the weights of two models, which compute the same or not, are apart, up to the families."""
    families = ", ".join(map(translated, weights.families or ("nothing",)))
    if weights.equal and not same:
        return translated(f"weights: equal up to {families}, so that what differs is a buffer or the code")
    if weights.equal:
        return translated(f"weights: equal up to {families} (relative distance as stored {weights.as_stored:.1e})")
    return translated(
        f"weights: relative distance {weights.as_stored:.3g} as stored, {weights.canonical:.3g} up to {families}; "
        f"{len(weights.apart)} parameters differ"
    )
