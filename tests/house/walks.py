"""Walks through the sources: the files that somebody passes who follows one thing from its beginning to its end.

The thing is one field of a study file, one query, one bias, one measured loss. A way is run once, in its smallest case, and
every function of addnorm that gets the thing as an argument, or returns it, is noted at the first time: a reader reads a
function once. From these functions, in order, follow

    stays      runs of consecutive functions in one file
    returns    stays in a file in which there was an earlier stay
    climbs     calls of such a function in a file of a higher layer than the caller's, by the contracts of import-linter: a
               callback, or a table of siblings, where reading on means searching

    python tests/house/walks.py [WAY ...] [--files]    in a process of its own, because caches make a second walk shorter
"""

import json
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCES = str(ROOT / "src")


@dataclass
class Walk:
    """First calls of functions, in order."""

    files: list[str] = field(default_factory=list)
    """The file of each."""
    climbs: list[tuple[str, str]] = field(default_factory=list)
    """File of the caller and of the function, by first calls that lead upward."""

    @property
    def stays(self) -> list[str]:
        """Files in the order of the stays."""
        return [file for place, file in enumerate(self.files) if place == 0 or self.files[place - 1] != file]

    @property
    def returns(self) -> int:
        """Number of stays in files that were visited before."""
        return len(self.stays) - len(set(self.stays))

    def counts(self) -> dict[str, int]:
        """Stays, returns and climbs."""
        return {"stays": len(self.stays), "returns": self.returns, "climbs": len(self.climbs)}


class Layers:
    """The layers of a project's import-linter contracts, by container."""

    def __init__(self, pyproject: Path) -> None:
        contracts = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
        self._heights: dict[str, dict[str, int]] = {}
        for contract in contracts:
            if contract["type"] == "layers":
                rows = [[name.strip() for name in row.split("|")] for row in reversed(contract["layers"])]
                for container in contract.get("containers", ["addnorm"]):
                    names = {
                        name.removeprefix(f"{container}."): height for height, row in enumerate(rows) for name in row
                    }
                    self._heights.setdefault(container, {}).update(names)

    def climbs(self, caller: str, callee: str) -> bool:
        """True if a module lies in a higher layer than another one, by the contract of the package that both are in."""
        one, two = caller.split("."), callee.split(".")
        shared = 0
        while shared < min(len(one), len(two)) and one[shared] == two[shared]:
            shared += 1
        for count in range(shared, 0, -1):
            heights = self._heights.get(".".join(one[:count]), {})
            first, second = (_height(heights, module[count:]) for module in (one, two))
            if first is not None and second is not None:
                return second > first
        return False


def _height(heights: dict[str, int], names: list[str]) -> int | None:
    """The height of a module by the longest of its beginnings that a contract names."""
    for count in range(len(names), 0, -1):
        if ".".join(names[:count]) in heights:
            return heights[".".join(names[:count])]
    return None


@contextmanager
def walked(walk: Walk, layers: Layers, is_thing: Callable[[object], bool]) -> Iterator[None]:
    """Note the functions of the sources that get or return the thing during the block. What an import calls is left out."""
    seen: set[CodeType] = set()
    importing = 0

    def note(frame: FrameType, event: str, returned: Any) -> None:
        nonlocal importing
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(SOURCES):
            return
        if code.co_name == "<module>":
            importing += 1 if event == "call" else -1
        elif not importing and code not in seen and code.co_name[0] != "<":
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            values = (
                [returned] if event == "return" else [frame.f_locals[name] for name in names if name in frame.f_locals]
            )
            if any(_holds(value, is_thing) for value in values):
                seen.add(code)
                walk.files.append(_module(code))
                caller = frame.f_back
                while caller is not None and not caller.f_code.co_filename.startswith(SOURCES):
                    caller = caller.f_back
                if caller is not None and layers.climbs(_module(caller.f_code), _module(code)):
                    walk.climbs.append((_module(caller.f_code), _module(code)))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def _holds(value: object, is_thing: Callable[[object], bool], depth: int = 8) -> bool:
    """True for the thing, and for a container or dataclass that has it."""
    if is_thing(value):
        return True
    if depth == 0 or isinstance(value, type | str | bytes):
        return False
    within: Iterator[object]
    if isinstance(value, Mapping):
        within = iter([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple | set | frozenset):
        within = iter(value)
    elif is_dataclass(value):
        within = (getattr(value, of.name, None) for of in fields(value))
    else:
        return False
    return any(_holds(entry, is_thing, depth - 1) for entry in within)


def _module(code: CodeType) -> str:
    path = Path(code.co_filename).relative_to(SOURCES).with_suffix("")
    return ".".join(path.parts[:-1] if path.name == "__init__" else path.parts)


Way = tuple[Callable[[], object], Callable[[object], bool]]
"""What runs a way, and what recognises the thing that is followed."""

VALUE = 0.12345
STUDY = f"""
name: walked
variants: {{base: {{}}, scaled: {{residual: {{kind: scale, alpha: {VALUE}}}}}}}
model: {{width: 8, depth: 2, heads: 2, kv_heads: 2, hidden: 8, max_seq: 8}}
training: {{steps: 2, batch: 1, seq: 8}}
seeds: [0]
"""


def query_to_kernel(_: Path) -> Way:
    """The queries of a layer, from the projection to the kernel."""
    import torch
    from torch import Tensor

    import addnorm

    model = addnorm.preset("base", vocab=8, width=8, depth=1, heads=2, kv_heads=1, hidden=8, max_seq=8).build(seed=0)
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    # The queries are the only numbers of four positions, two heads and four entries: keys and values have one head.
    return lambda: model(tokens), lambda value: isinstance(value, Tensor) and sorted(value.shape) == [1, 2, 4, 4]


def bias_to_verdict(_: Path) -> Way:
    """The bias of a linear layer, from the model to the verdict of the redundancy analysis."""
    import torch
    from torch import nn

    from addnorm.redundancy.analysis import audit

    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2, bias=False))
    return lambda: audit(
        model, torch.randn(1, 2)
    ), lambda value: value is model[0].bias or (isinstance(value, str) and value == "0.bias")


def event_to_page(folder: Path) -> Way:
    """The loss of an evaluation, from the recorded line to the page with the curves of the study."""
    from addnorm.reporting.reader import Reader
    from addnorm.reporting.render import Pages
    from addnorm.reporting.view import View
    from addnorm.store import StudyFolder

    runs = [{"run": f"v-s{seed}", "variant": "v", "seed": seed, "steps": 300} for seed in range(2)]
    plan = {"study": "walked", "plan_hash": "p", "variants": ["v"], "references": ["v"], "margin": 0.1, "runs": runs}
    study = StudyFolder.create(folder, plan)
    view = View(page="curves", link=lambda page, **query: f"#{page}")

    def way() -> object:
        for run in study.runs():
            with run.claim() as events:
                for step in range(10, 301, 10):
                    events.write("train", step=step, loss=VALUE)
                events.write("eval", step=300, loss=VALUE)
            run.mark("finished", step=300)
        return Pages().page(Reader(folder).look(), view, asset=str, in_language=str, events="", number=0)

    text = str(VALUE)
    return (
        way,
        lambda value: (
            value == VALUE
            if isinstance(value, float)
            else text in value
            if isinstance(value, str)
            else text.encode() in value
            if isinstance(value, bytes)
            else False
        ),
    )


def study_to_runs(folder: Path) -> Way:
    """A field of a variant, from the line of a study file to the specs of its runs."""
    from addnorm.study.expansion import expand
    from addnorm.study.loading import load_study
    from addnorm.study.points import trained_first
    from addnorm.supervision.prepared import fitted_study

    file = folder / "walked.yaml"
    file.write_text(STUDY, encoding="utf-8")

    def way() -> object:
        study = trained_first(load_study(file))
        return expand(fitted_study(study, 256).study, "d" * 64)

    return way, lambda value: isinstance(value, float) and value == VALUE


WAYS: dict[str, Callable[[Path], Way]] = {
    "query to kernel": query_to_kernel,
    "bias to verdict": bias_to_verdict,
    "event to page": event_to_page,
    "study to runs": study_to_runs,
}


def walk(way: str, folder: Path) -> Walk:
    """Walk one of the ways."""
    (function, is_thing), walk = WAYS[way](folder), Walk()
    with walked(walk, Layers(ROOT / "pyproject.toml"), is_thing):
        function()
    return walk


def main(arguments: list[str]) -> None:
    """Print the counts of the ways as JSON; with `--files`, the stays and climbs too."""
    named = [way for way in arguments if way in WAYS] or list(WAYS)
    with tempfile.TemporaryDirectory() as folder:
        walks = {way: walk(way, Path(tempfile.mkdtemp(dir=folder))) for way in named}
    print(json.dumps({way: each.counts() for way, each in walks.items()}))
    if "--files" in arguments:
        for way, each in walks.items():
            print(way, *each.stays, "climbs:", *(f"{one} -> {two}" for one, two in each.climbs), sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
