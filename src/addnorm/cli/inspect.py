"""Measure gradients, the stream, attention, scores, early exit and which layer listens to which, of a trained model.

A run is measured before the first step and after training, on held-out text of its own data, and the measures are written to
insight.json in its folder. A folder with a Transformers checkpoint (any decoder or encoder with logits, or an exported run) is
measured as it is on the text of --text, or on token ids in a .json file; parts that are not found in the model are named. So is
a module of your own: file.py:function returns it and its tokens [batch, seq], which take the place of --text. With
--to DIR the measures are written into that folder, and `addnorm watch DIR` and `addnorm report DIR` show them as those of runs,
several checkpoints side by side. With --terms, the four terms of a score with rotary
position and q/k biases are measured instead (Su, 2023), of a run or of a checkpoint; those of a run are written to terms.json.
With --ablate, each group of learned coefficients is set to its neutral value instead, to see whether it does anything.

For example:
    addnorm inspect runs/first/base-s0-1a2b3c4d
    addnorm inspect runs/first --sequences 32
    addnorm inspect runs/first --ablate
    addnorm inspect ~/models/Qwen2.5-0.5B --text book.txt
    addnorm inspect ~/models/Qwen2.5-0.5B --text book.txt --to measures
    addnorm inspect mine.py:build
    addnorm inspect runs/first/biased-s0-1a2b3c4d --terms --beside runs/first/base-s0-1a2b3c4d --plot terms.svg
    addnorm inspect ~/models/Qwen2.5-0.5B --terms --text book.txt
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from addnorm.cli._inspect.terms import FourTerms, checkpoint_length, require_unused, show_terms
from addnorm.cli._text import PluginOption, on_screen, page_width, print_json, print_line
from addnorm.errors import InputError
from addnorm.reporting.formats.table import Column, ResultTable, dashed
from addnorm.reporting.formats.text_table import filled
from addnorm.words import command_line, spoken, translated


@dataclass(frozen=True)
class Options(PluginOption):
    target: Annotated[Path, tyro.conf.Positional]
    """Folder of a run, of a study to inspect all of its runs (not with --terms), or of a Transformers checkpoint; or
    file.py:function."""
    sequences: int = 16
    """Held-out sequences for gradients, the stream and early exit."""
    map_sequences: int = 4
    """Held-out sequences for attention and scores."""
    ablate: bool = False
    """Measure the change of held-out loss when coefficients are neutral instead, with an interval over seeds."""
    to: Path | None = None
    """For a checkpoint: folder of a study, or any other, that receives the measures for `addnorm watch` and `report`."""
    name: str | None = None
    """With --to: the checkpoint's name there; that of its folder if not given."""
    four_terms: FourTerms = field(default_factory=FourTerms)


def command(options: Options) -> int:
    import addnorm
    from addnorm.insight.probe.checkpoint import is_function
    from addnorm.outside.hugging_face.checkpoint import is_checkpoint
    from addnorm.reporting.sections.depth.text import text as depth_text
    from addnorm.reporting.sections.insight import table

    if options.ablate:
        if options.four_terms.terms:
            raise InputError("--ablate: expected without --terms, got both. Call inspect once for each.")
        require_unused(options.four_terms, besides=())
        if options.to is not None or options.name is not None:
            raise InputError("--to: expected without --ablate, which writes nothing. Leave --to and --name out.")
        ablated = addnorm.ablate(options.target, sequences=options.sequences, plugins=options.plugin, say=print_line)
        print_json(ablated) if options.json else print(ablation_table(ablated, page_width()))
        return 0
    if options.four_terms.terms:
        from addnorm.study.plugins import load_plugins

        load_plugins(options.plugin, Path.cwd())
        return show_terms(options.target, options.four_terms, to=options.to, name=options.name, json=options.json)
    given = options.four_terms
    checkpoint = is_checkpoint(options.target) or is_function(options.target)
    ours = any((options.target / name).is_file() for name in ("spec.json", "study.json"))
    require_unused(given, besides=() if ours else ("text", "length"))
    measured = addnorm.inspect(
        options.target,
        sequences=options.sequences,
        map_sequences=options.map_sequences,
        text=given.text,
        length=checkpoint_length(given.length) if checkpoint else None,
        to=options.to,
        name=options.name,
        plugins=options.plugin,
        say=print_line,
    )
    if options.json:
        print_json(measured)
        return 0
    print(table.text(measured, page_width()))
    if matrices := depth_text(measured["runs"], page_width()):
        print(f"\n{matrices}")
    if options.to is not None:
        print(translated(f"\nWritten to {options.to}. See it:"))
        print(f"  {command_line('addnorm', 'watch', options.to)}")
    return 0


def ablation_table(measured: Mapping[str, Any], width: int) -> str:
    """Format the result of `addnorm.ablate`."""
    rows, t = measured["over_seeds"], spoken()
    columns = (
        Column("variant", t("head.variant"), side="l"),
        Column("group", t("ablation.group"), side="l"),
        Column("set_to", t("ablation.set_to"), lambda value: t(f"ablation.{value}"), side="l"),
        Column("mean", t("ablation.change"), dashed("+.4f")),
        *(Column(name, t(f"ablation.{name}"), dashed("+.4f")) for name in ("low", "high")),
        Column("seeds", t("head.seeds")),
    )
    without = sorted({run["variant"] for run in measured["runs"] if not run["groups"]})
    parts = [on_screen(ResultTable(columns, rows))] if rows else []
    gauges = {row["group"]: None for run in measured["runs"] for row in run["groups"] if row.get("gauge")}
    if gauges:
        parts.append(filled(t("ablation.gauge", names=", ".join(gauges)), width))
    if without:
        parts.append(filled(t("ablation.without", names=", ".join(without)), width))
    parts += [t("ablation.skipped", name=name, reason=reason) for name, reason in measured["skipped"].items()]
    return "\n\n".join([*parts, *([filled(t("ablation.legend"), width)] if rows else [])])
