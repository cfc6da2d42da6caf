"""The recipes for clusters: files that their tools read, with a command that addnorm takes."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import tyro
import yaml

from addnorm.cli import run
from addnorm.study.loading import load_study

RECIPES = Path(__file__).parents[2] / "examples" / "clusters"


def content(name: str) -> Any:
    return yaml.safe_load((RECIPES / name).read_text(encoding="utf-8"))


def commands() -> dict[str, list[str]]:
    """The command of each recipe."""
    (container,) = content("kubernetes.yaml")["spec"]["template"]["spec"]["containers"]
    return {"kubernetes.yaml": container["command"], "skypilot.yaml": shlex.split(content("skypilot.yaml")["run"])}


def test_every_recipe_is_looked_at() -> None:
    assert sorted(commands()) == sorted(path.name for path in RECIPES.iterdir())


@pytest.mark.parametrize("name", sorted(commands()))
def test_the_command_of_a_recipe_is_one_that_runs(name: str) -> None:
    program, verb, *arguments = commands()[name]
    assert (program, verb) == ("addnorm", "run")
    options = tyro.cli(run.Options, args=run.expanded(arguments))
    assert load_study(options.study, profile=options.profile, settings=options.set).variants
    assert options.out is not None
    assert options.out.parts[:2] == ("/", "runs")  # the volume that outlives the machine


def test_skypilot_reads_its_recipe() -> None:
    sky = pytest.importorskip(
        "sky", reason="SkyPilot is not installed (pip install skypilot), which reads skypilot.yaml"
    )
    task = sky.Task.from_yaml(str(RECIPES / "skypilot.yaml"))
    assert "/runs" in task.storage_mounts
    assert all(resources.use_spot for resources in task.resources)


def test_kubernetes_takes_its_recipe() -> None:
    schemas = pytest.importorskip(
        "kubernetes_validate",
        reason="the schemas of Kubernetes are not installed (pip install kubernetes-validate), which judge kubernetes.yaml",
    )
    schemas.validate(content("kubernetes.yaml"), schemas.latest_version(), strict=True)
