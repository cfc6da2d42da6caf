"""What a release says of itself is the same everywhere."""

import re
import tomllib
from pathlib import Path

import yaml

import addnorm

ROOT = Path(__file__).parents[2]


def test_the_version_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert project["version"] == addnorm.__version__ == str(citation["version"])
    assert f"## [{addnorm.__version__}]" in changes
    assert project["license"] == citation["license"]


def test_the_workflow_runs_what_ci_runs_on_the_pythons_that_are_allowed() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    assert job["steps"][-1]["run"] == "bash .ci/run"
    assert (ROOT / ".ci" / "run").is_file()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f">={job['strategy']['matrix']['python'][0]}" == project["requires-python"]


def test_issue_forms_are_whole() -> None:
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) == 3
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert form.keys() >= {"name", "description", "body"}, path.name
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert all(field["id"] and field["attributes"]["label"] for field in fields), path.name


def test_the_page_for_programs_names_what_there_is() -> None:
    from addnorm.cli import commands

    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^    addnorm ([a-z]+)", text, re.M))
    assert named
    assert named <= set(commands())
    for path in re.findall(r"`(?:python )?(docs/[\w/]+\.py)", text):
        assert (ROOT / path).is_file(), path


def test_what_the_site_is_built_with_is_installed_for_development() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert "addnorm[docs,torch]" in extras["dev"]
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
    assert set(extras["docs"]) <= pinned
