"""The notebook of the documentation: committed without outputs, and executed without an error."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

import addnorm

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MAGIC = re.compile(r"^%", flags=re.M)


def code_cells(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_source_has_no_outputs_and_names_what_exists(path: Path) -> None:
    """Cheap: what runs is tested below."""
    cells = code_cells(path)
    assert len(cells) > 5
    for cell in cells:
        assert (cell["outputs"], cell["execution_count"]) == ([], None), (
            "clear the outputs: they are made by `make notebook`"
        )
        source = "".join(cell["source"])
        compile(MAGIC.sub("# ", source), path.name, "exec")
        assert set(re.findall(r"\baddnorm\.(\w+)\(", source)) <= set(addnorm.__all__)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(path: Path, tmp_path: Path) -> None:
    program = importlib.util.spec_from_file_location("notebook_program", ROOT / "docs" / "notebook.py")
    assert program is not None
    assert program.loader is not None
    module = importlib.util.module_from_spec(program)
    program.loader.exec_module(module)
    page = module.build(path, tmp_path)
    cells = code_cells(tmp_path / path.name)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"display_data", "execute_result"}
    text = page.read_text(encoding="utf-8")
    assert "100% of all steps" in text
    assert "<th>tier</th>" in text
    assert 'class="dataframe"' in text
    pictures = re.findall(r"\]\((\w+_files/[\w.]+\.png)\)", text)
    assert pictures
    assert all((tmp_path / picture).stat().st_size > 5000 for picture in pictures)
