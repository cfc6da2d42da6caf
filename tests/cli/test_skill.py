"""SKILL.md: its commands, taken literally, reach the right verdict or the right refusal on tables that other code wrote."""

import importlib
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
import tyro
import yaml

from addnorm.cli import main
from addnorm.cli.list import SKILL
from addnorm.statistics.effects.next_step import Action

TEXT = SKILL.read_text(encoding="utf-8")
COMMANDS = [
    command.split("  #")[0].strip()
    for command in re.findall(r"(?:^    |`)(addnorm [^`\n]*--json[^`\n]*)", TEXT, re.MULTILINE)
]
PLAIN = "addnorm rank results.csv --json"
NAMED = "addnorm rank results.csv --columns variant=model,loss=val_loss --json"
WIDE = "addnorm rank results.csv --columns variant=model,run=seed_{seed} --json"
ACCURACY = "addnorm rank results.csv --columns loss=accuracy --direction higher --unit % --margin 0.2 --json"
CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone)
NO_SEEDS = "addnorm rank results.csv --columns seed= --json"
WANDB = "addnorm rank results.csv --columns variant=Name,run={variant}-s{seed},loss=val_loss --json"
TRACKER = "addnorm rank results.csv --columns variant=params.model,seed=params.seed,loss=metrics.val_loss --json"


def answer(command: str, table: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON and message of a command of the skill, with the table's path in place of `results.csv`."""
    assert command in COMMANDS, "commands are those of SKILL.md"
    words = shlex.split(command)[1:]
    code = main([str(table) if word == "results.csv" else word for word in words])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def verdict(found: dict[str, Any], variant: str, reference: str = "base") -> Any:
    row = next(row for row in found["variants"] if row["variant"] == variant)
    return row["versus"][reference]["verdict"]


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A table, the commands of the skill in the order of their use, and what the last one answers."""

    text: str
    commands: tuple[str, ...]
    refusals: tuple[str, ...] = ()
    """What the message of each refused command names."""
    verdicts: dict[str, str | None]
    action: Action | None = None
    """None if the table is refused."""
    seeds: int | None = None
    holds: Callable[[dict[str, Any]], bool] = lambda found: True


LOSSES = {"base": (2.503, 2.522, 2.511), "rezero": (2.412, 2.443, 2.421)}
ROWS = [(name, seed, loss) for name, row in LOSSES.items() for seed, loss in enumerate(row)]
HEADER = "variant,seed,loss"


def lines(*rows: object) -> str:
    return "\n".join(",".join(map(str, row)) if isinstance(row, tuple) else str(row) for row in rows) + "\n"


TABLES = {
    "decimal commas": Foreign(
        text="model;seed;val_loss\r\n"
        + "".join(f"{name};{seed};{loss}\r\n".replace(".", ",") for name, seed, loss in ROWS),
        commands=(PLAIN, NAMED),
        refusals=("--columns variant=NAME",),
        verdicts={"rezero": "better"},
        action="report",
        holds=lambda found: abs(found["variants"][0]["versus"]["base"]["difference"] + 0.0867) < 1e-4,
    ),
    "header of every job": Foreign(
        text=lines(*(line for row in ROWS for line in (HEADER, row))),
        commands=(PLAIN,),
        verdicts={"rezero": "better"},
        action="report",
    ),
    "accuracy": Foreign(
        text=lines("variant,seed,accuracy", *((v, s, f"{100 - 10 * x:.2f}") for v, s, x in ROWS)),
        commands=(PLAIN, ACCURACY),
        refusals=("--columns loss=NAME",),
        verdicts={"rezero": "better"},
        action="report",
        holds=lambda found: found["better"] == "higher" and found["variants"][0]["variant"] == "rezero",
    ),
    "per cent signs": Foreign(
        text=lines("variant,seed,accuracy", *((v, s, f"{100 - 10 * x:.2f}%") for v, s, x in ROWS)),
        commands=(PLAIN, ACCURACY),
        refusals=("--columns loss=NAME", "Write the number alone"),
        verdicts={},
    ),
    "one seed": Foreign(
        text=lines(HEADER, *(row for row in ROWS if row[1] == 0)),
        commands=(PLAIN,),
        refusals=("run each variant at three seeds or more",),
        verdicts={},
    ),
    "two seeds": Foreign(
        text=lines(HEADER, *(row for row in ROWS if row[1] < 2)),
        commands=(PLAIN,),
        verdicts={"rezero": None},
        action="run_seeds",
        seeds=3,
    ),
    "no seeds": Foreign(
        text=lines("variant,loss", *((v, x) for v, _, x in ROWS)),
        commands=(PLAIN, NO_SEEDS),
        refusals=("--columns seed=",),
        verdicts={"rezero": "better"},
        action="report",
        holds=lambda found: found["unpaired"] is True,
    ),
    "crashed": Foreign(
        text=lines(
            "variant,seed,loss,state",
            *((*row, "finished") for row in ROWS),
            "base,3,2.514,finished",
            "rezero,3,6.91,crashed",
        ),
        commands=(PLAIN,),
        verdicts={"rezero": "better"},
        action="report",
        holds=lambda found: (
            [value["counted"] for value in found["variants"][0]["values"]].count(False) == 1
            and any("rezero" in warning and "crashed" in warning for warning in found["warnings"])
        ),
    ),
    "wide": Foreign(
        text=lines("model,seed_0,seed_1,seed_2", *((name, *row) for name, row in LOSSES.items())),
        commands=(PLAIN, WIDE),
        refusals=("expected columns 'variant'",),
        verdicts={"rezero": "better"},
        action="report",
    ),
    "W&B": Foreign(
        text=lines(
            '"Name","State","Created","val_loss"',
            *(f'"{v}-s{s}","finished","2026-01-0{s + 1}T00:00:00.000Z","{x}"' for v, s, x in ROWS),
            '"rezero-s3","running","2026-01-05T00:00:00.000Z","2.9"',
        ),
        commands=(PLAIN, WANDB),
        refusals=("expected columns 'variant'",),
        verdicts={"rezero": "better"},
        action="wait",
        holds=lambda found: found["provisional"] is True,
    ),
    "MLflow": Foreign(
        text=lines(
            "run_id,status,params.model,params.seed,metrics.val_loss",
            *((f"{place:032x}", "FINISHED", *row) for place, row in enumerate(ROWS)),
        ),
        commands=(PLAIN, TRACKER),
        refusals=("expected columns 'variant'",),
        verdicts={"rezero": "better"},
        action="report",
    ),
    "a copy under another name": Foreign(
        text=lines(
            HEADER, *((v, s, x + 1 / 7 ** (9 + s)) for v, s, x in (*ROWS, *(("again", s, x) for _, s, x in ROWS[:3])))
        ),
        commands=(PLAIN,),
        verdicts={"rezero": "better", "again": "equivalent"},
        action="report",
        holds=lambda found: {row["variant"]: row["same_as"] for row in found["variants"]}["again"] == "base",
    ),
    "a seed twice": Foreign(
        text=lines(HEADER, *ROWS, "base,2,2.498"), commands=(PLAIN,), refusals=("line 8",), verdicts={}
    ),
    "text in the loss": Foreign(
        text=lines(HEADER, *ROWS[:5], "rezero,2,2.421 (best)"), commands=(PLAIN,), refusals=("line 7",), verdicts={}
    ),
    "noise": Foreign(
        text=lines(HEADER, *ROWS[:3], "rezero,0,2.489", "rezero,1,2.471", "rezero,2,2.513"),
        commands=(PLAIN,),
        verdicts={"rezero": "undecided"},
        action="run_new_seeds",
    ),
    "one variant": Foreign(text=lines(HEADER, *ROWS[:3]), commands=(PLAIN,), verdicts={}, action="add_variant"),
    "diverged reference": Foreign(
        text=lines(HEADER, *ROWS, "base,3,nan", "rezero,3,2.43"),
        commands=(PLAIN,),
        verdicts={"rezero": "better"},
        action="report",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_skill_judges_a_foreign_table(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = TABLES[name]
    table = tmp_path / "export.csv"
    table.write_text(given.text, encoding="utf-8", newline="")
    found: dict[str, Any] = {}
    for place, command in enumerate(given.commands):
        code, found, message = answer(command, table, capsys)
        if place < len(given.refusals):
            assert code == 2
            assert given.refusals[place] in message
            assert message.count("\n") == 1
        else:
            assert code == 0, message
    assert {variant: verdict(found, variant) for variant in given.verdicts} == given.verdicts
    if given.action is None:
        assert found == {}
        return
    assert found["next"]["action"] == given.action
    assert given.seeds is None or found["next"]["seeds"] == given.seeds
    assert given.holds(found)


def test_the_skill_names_every_action_and_its_examples_are_read() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)) == set(get_args(Action))
    assert len(COMMANDS) > 10
    for command in COMMANDS:
        name, *words = shlex.split(command)[1:]
        if name != "list":
            tyro.cli(importlib.import_module(f"addnorm.cli.{name}").Options, args=words, config=CONFIG)


def test_the_skill_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "skill"]) == 0
    assert capsys.readouterr().out == TEXT
    assert main(["list", "skill", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"skill": TEXT}
    front = yaml.safe_load(TEXT.split("---")[1])
    assert front["name"] == "addnorm"
    assert 50 < len(front["description"]) <= 1024


OTHER = (
    ("addnorm noise results.csv --json", lambda found: 0.01 < found["one_run"]["sd"] < 0.02),
    ("addnorm noise results.csv --difference 0.01 --json", lambda found: found["needed"][0]["unpaired"] > 10),
    (
        "addnorm rank results.csv --rule parameter-golf --json",
        lambda found: found["variants"][0]["verdict"] == "passes",
    ),
)


@pytest.mark.parametrize(("command", "holds"), OTHER)
def test_other_questions_of_the_skill_are_answered(
    command: str, holds: Callable[[dict[str, Any]], bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "runs.csv"
    table.write_text(lines(HEADER, *ROWS), encoding="utf-8")
    code, found, message = answer(command, table, capsys)
    assert code == 0, message
    assert holds(found)
