"""What a release says of itself is the same everywhere."""

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


def test_what_the_site_is_built_with_is_installed_for_development() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert "addnorm[docs]" in extras["dev"]
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
    assert set(extras["docs"]) <= pinned
