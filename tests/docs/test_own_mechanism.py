"""The guide to a mechanism of one's own: its table of laws is that of the code, and its lines are run as they stand."""

import importlib.util
import re
import shlex
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from addnorm.catalogue import remove_plugin
from addnorm.cli import main
from addnorm.web.app import application
from train_here import workers_here

DOCS = Path(__file__).parents[2] / "docs"
PARTS = re.compile(r"^```yaml\n(.*?)^```$|^    (addnorm [^\n]*)$", re.M | re.S)


def laws() -> Any:
    spec = importlib.util.spec_from_file_location("mechanism_laws", DOCS / "mechanism_laws.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_table_is_that_of_the_code(language: str) -> None:
    module = laws()
    assert list(module.ZH) == list(module.CHECKED)
    assert module.page(language) == module.PAGES[language].read_text(encoding="utf-8"), "python docs/mechanism_laws.py"
    for name, law in module.CHECKED.items():
        assert f"| `{name}` | " in module.page(language)
        assert law.__name__ == name


@pytest.fixture(autouse=True)
def _forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADDNORM_STATE", str(tmp_path / "state"))
    yield
    remove_plugin("momentum")


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize(
    ("page", "language"),
    [("own-mechanism.md", "en"), pytest.param("own-mechanism.zh-CN.md", "zh", marks=pytest.mark.thorough)],
)
def test_every_line_works(page: str, language: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = []
    for match in PARTS.finditer((DOCS / "guide" / page).read_text(encoding="utf-8")):
        if match[1]:
            Path("momentum.yaml").write_text(match[1], encoding="utf-8")
            continue
        remove_plugin("momentum")  # each command is a process of its own
        words = [name for word in shlex.split(match[2])[1:] for name in glob(word) or [word]]  # as a shell does
        with workers_here():
            code = main([*words, "--lang", language])
        out, err = capsys.readouterr()
        assert code == 0, f"{match[2]}: {err}"
        ran.append((match[2].split()[1], out))
    assert [command for command, _ in ran] == ["new", "list", "run", "rank", "inspect", "report", "inspect"]
    said = dict(ran)
    assert "momentum-half" in said["rank"]
    assert "alpha_l" in said["list"]
    reports = list(Path("runs/momentum").rglob("*.html"))
    assert any("class MomentumResidual(Residual)" in each.read_text(encoding="utf-8") for each in reports)
    # `addnorm watch runs/momentum` serves this, without the plugin: the page reads files alone.
    remove_plugin("momentum")
    site = TestClient(application(Path("runs/momentum")), base_url="http://127.0.0.1:8321")
    for address in ("/", "/model?variant=momentum-half"):
        shown = site.get(address)
        assert (shown.status_code, "momentum-half" in shown.text) == (200, True), address
    assert "alpha_l" in shown.text, "the formula of a mechanism of one's own"
