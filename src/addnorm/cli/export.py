"""Write a finished run's weights (safetensors) and spec (JSON) into a folder of its own.

With --format hf, the folder is a checkpoint of Hugging Face Transformers, with the tokenizer. A model that is a Llama, Qwen2,
GPT-2, BERT or GPT-NeoX in all but name is written as that class and needs addnorm no more; every other model is loaded after
`import addnorm.hf`. The command says which of the two it is, and what vLLM and GGUF cannot express.

For example:
    addnorm export runs/first/base-s0-1a2b3c4d --to base
    addnorm export runs/first/base-s0-1a2b3c4d --format hf --to base-hf
"""

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from addnorm.cli._text import PluginOption, paragraph, print_json
from addnorm.words import translated

if TYPE_CHECKING:
    from addnorm.store import RunFolder
    from addnorm.study.foreign import ForeignSpec


@dataclass(frozen=True)
class Options(PluginOption):
    run: Annotated[Path, tyro.conf.Positional]
    """Folder of the run, such as runs/first/base-s0-1a2b3c4d."""
    to: Path | None = None
    """Folder to write; exported/RUN if not given."""
    format: Literal["addnorm", "hf"] = "addnorm"
    """`addnorm` for `addnorm.load`, `hf` for Hugging Face Transformers."""


def command(options: Options) -> int:
    from addnorm.store import RunFolder
    from addnorm.study.foreign import ForeignSpec
    from addnorm.study.plugins import load_plugins
    from addnorm.training.export import export_run
    from addnorm.training.run_spec import run_spec

    load_plugins(options.plugin, Path.cwd())
    to = options.to or Path("exported") / options.run.name
    run = RunFolder(options.run)
    foreign = run_spec(run).model if (run.path / "spec.json").is_file() else None
    if isinstance(foreign, ForeignSpec):
        return _export_foreign(run, foreign, to, options)
    if options.format == "hf":
        return _export_hf(run, to, options)
    export_run(run, to)
    if options.json:
        print_json({"run": options.run.name, "folder": str(to), "files": sorted(path.name for path in to.iterdir())})
    else:
        plugins = f", plugins={list(options.plugin)}" if options.plugin else ""
        print(translated(f"Wrote {to}. To use it:"))
        print(f"  import addnorm\n  model = addnorm.load({str(to)!r}{plugins})")
    return 0


def _export_foreign(run: "RunFolder", model: "ForeignSpec", to: Path, options: Options) -> int:
    """Write a model of others in the form of its own library, which `--format hf` asks for too if that is Transformers."""
    from addnorm.errors import InputError
    from addnorm.training.export import export_run

    if options.format == "hf" and model.kind != "checkpoint":
        raise InputError(
            f"--format hf: expected a model of addnorm or one from a checkpoint, got {model.kind}, whose class Transformers "
            "does not know. Leave --format out."
        )
    export_run(run, to)
    code = model.loading(to)
    if options.json:
        files = sorted(path.name for path in to.iterdir())
        print_json({"run": run.name, "folder": str(to), "files": files, "loading": code})
    else:
        print(translated(f"Wrote {to}. To use it:"))
        print(textwrap.indent(code, "  "))
    return 0


def _export_hf(run: "RunFolder", to: Path, options: Options) -> int:
    from addnorm.outside.hugging_face.saving import export_hf

    exported = export_hf(run, to, plugins=options.plugin)
    if options.json:
        print_json(
            {
                "run": run.name,
                "folder": str(to),
                "files": sorted(path.name for path in to.iterdir()),
                "architecture": exported.architecture,
                "needs_addnorm": exported.needs_addnorm,
                "notes": list(exported.notes),
            }
        )
        return 0
    print(translated(f"Wrote {to} as {exported.architecture}. To use it:"))
    if exported.needs_addnorm:
        print("  import addnorm.hf")
    if options.plugin:
        print(f"  addnorm.hf.load_plugins({list(options.plugin)})")
    print(
        f"  from transformers import {exported.auto_class}\n  model = {exported.auto_class}.from_pretrained({str(to)!r})"
    )
    for note in exported.notes:
        print(paragraph(note))
    return 0
