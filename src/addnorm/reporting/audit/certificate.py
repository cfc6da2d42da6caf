"""The certificate of a rewrite and the comparison of two models, as text."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.audit.table import merged_names
from addnorm.reporting.formats.text_table import filled
from addnorm.words import translated

Json = Mapping[str, Any]


def text(certificate: Json, path: str, *, width: int = 120, written: bool = True, given_up: int | None = None) -> str:
    """The removed parameters, the parameters that absorbed others, and every comparison with its bound, in the terminal's
    language.

    Args:
        certificate: the JSON of a certificate.
        path: of the file.
        width: columns.
        written: False if the file was not written, because the certificate failed.
        given_up: number of scalars that the audit found to be redundant together, if fewer may be gone; None to leave the
            difference out.
    """
    lines = [
        f"Wrote {path}: {certificate['scalars']} bias scalars less."
        if written
        else f"{path} was not written, because the certificate failed. It would have {certificate['scalars']} bias scalars "
        "less; --force writes it."
    ]
    if given_up is not None and given_up > certificate["scalars"]:
        kept = ", ".join(merged_names([*certificate.get("reduced", []), *certificate.get("refused", [])]))
        lines.append(
            f"  {given_up} can be given up, {certificate['scalars']} were: a file can leave out whole biases alone. The other "
            f"{given_up - certificate['scalars']} are directions inside biases that stay{kept and f' ({kept})'}, because the "
            "rest of such a bias matters or what takes over would grow too large."
        )
    for key, description in (
        ("removed", "Gone"),
        ("zeroed", "Zeros, where the class needs numbers"),
        ("changed", "Took over"),
        ("float32", "Stored in float32"),
        ("refused", "Kept, since what takes over would grow too large"),
    ):
        if certificate.get(key):
            lines.append(f"  {description}: {', '.join(merged_names(certificate[key]))}.")
    lines += [
        f"  Not carried over from the smaller model: {name}." for name in merged_names(certificate.get("left", []))
    ]
    lengths = f" and lengths {', '.join(map(str, certificate['lengths']))}" if certificate["lengths"] else ""
    verdict = "PASSED" if certificate["passed"] else "FAILED"
    lines.append(
        f"Certificate {verdict}: on {certificate['fresh']} inputs{lengths}, relative to the output's own size:"
    )
    lines += [f"  {_compared(row)}" for row in certificate["compared"]]
    shown = "\n".join(filled(translated(line), width, subsequent_indent="    ") for line in lines)
    return f"{shown}\n{how_to_load(path)}" if written else shown


def how_to_load(path: str) -> str:
    """The lines of Python that load a stripped file, or folder, into the original class.

    Example:
        >>> print(how_to_load("smaller"))
        To load it, with the class that was audited:
          model = Class.from_pretrained('smaller')
    """
    lines = (
        (
            "from safetensors.torch import load_model",
            f"gone, _ = load_model(model, {path!r}, strict=False)",
            "for name in gone:",
            "    model.get_parameter(name).data.zero_()",
        )
        if path.endswith(".safetensors")
        else (f"model = Class.from_pretrained({path!r})",)
    )
    head = translated("To load it, with the class that was audited:")
    return "\n".join([head, *(f"  {line}" for line in lines)])


def difference(comparison: Json, first: str, second: str) -> str:
    """The result of comparing two models.

    Args:
        comparison: the JSON of a comparison.
        first, second: the targets' names.
    """
    outputs = _outputs(comparison)
    if comparison["equivalent"]:
        kind = "are the same in every parameter" if comparison["moved"] == 0 else "differ only where it cannot matter"
        if comparison.get("reordered"):
            kind = f"differ only by the order of units or heads, in {', '.join(merged_names(comparison['reordered']))}"
        return (
            f"{first} and {second} {kind}: parameters are up to {comparison['moved']:.2g} apart, of which "
            f"{comparison['difference']:.2g} is left once what cannot matter is taken out; rounding explains "
            f"{comparison['bound']:.2g}{outputs}.{_settings(comparison)}"
        )
    if comparison.get("parameters_agree"):
        return (
            f"{first} and {second} are different models, although their parameters agree{outputs}{_cause(comparison)}."
        )
    apart = f"{comparison['parameter']} is {comparison['difference']:.2g} apart{_left_over(comparison)}"
    if not comparison.get("outputs_agree"):
        return f"{first} and {second} are different models: {apart}{outputs}."
    return (
        f"{first} and {second} differ in parameters that matter in general, and give the same outputs where tested: {apart}"
        f"{outputs}. Neither the directions that the audit knows nor an order of units or heads leads from one to the other; "
        "another relation may."
    )


def _left_over(comparison: Json) -> str:
    """Reason why a difference is one: a rounded model, a parameter that no rewrite touches, or more than rounding."""
    if comparison.get("rounded_to"):
        return (
            f", since the weights of one model are those of the other rounded to {comparison['rounded_to']}, which changes "
            "what it computes"
        )
    if comparison["bound"] == 0:
        return ", and no rewrite touches it, so that it had to be equal"
    return f" even once what cannot matter is taken out; rounding would explain {comparison['bound']:.2g}"


def _cause(comparison: Json) -> str:
    """Cause of different outputs of equal parameters."""
    if comparison.get("same_computation", True):
        return ""
    if comparison.get("unstored"):
        return f". A buffer differs that no file holds: {', '.join(merged_names(comparison['unstored']))}"
    named = ", ".join(merged_names(comparison.get("settings", ())))
    look = f"these settings differ: {named}" if named else "compare their code and hooks"
    return f". With equal parameters they compute differently: {look}"


def _settings(comparison: Json) -> str:
    """A sentence about settings that differ without an effect where it was tested; empty if none does."""
    if not comparison.get("settings"):
        return ""
    named = ", ".join(merged_names(comparison["settings"]))
    return f" These settings differ and changed nothing at the lengths tested; at others they may: {named}."


def _outputs(comparison: Json) -> str:
    """The comparison of the outputs, to be appended; empty in the JSON of earlier versions, which lacks it."""
    if "inputs" not in comparison:
        return ""
    integers = comparison["output_integers_changed"]
    return (
        f"; on {comparison['inputs']} inputs the outputs differ by {comparison['output_difference']:.2g} of their size, "
        f"rounding explains {comparison['output_bound']:.2g}{f', and {integers} integers differ' if integers else ''}"
    )


def _compared(row: Json) -> str:
    stored = f" with the numbers as stored in {row['stored']}" if row.get("stored") else ""
    where = f"{row['mode']}, {row['dtype']}{stored}"
    if row["skipped"]:
        return f"{where}: not compared, since the model itself does not run so: {row['skipped']}"
    mark = "" if row["passed"] else "  <-- TOO LARGE"
    rounding = "the rounding of its numbers" if stored else "the model's own rounding"
    integers = (
        f"; {row['integers_changed']} of {row['integers']} integers differ" if row.get("integers_changed") else ""
    )
    return (
        f"{where}: differs by {row['difference']:.1e} (allowed {row['bound']:.1e}; {rounding} "
        f"{row['rounding']:.1e}){integers}{mark}"
    )
