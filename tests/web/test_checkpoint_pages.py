"""The site of a folder of measured checkpoints."""

from collections.abc import Callable
from pathlib import Path

from starlette.testclient import TestClient

import made_files


def test_a_folder_without_a_study_has_the_pages_of_checkpoints_alone(
    tmp_path: Path, client: Callable[..., TestClient]
) -> None:
    made_files.checkpoint(tmp_path, "mine")
    site = client(tmp_path)
    home = site.get("/")
    assert home.status_code == 200
    assert 'href="/checkpoint?variant=mine"' in home.text
    assert "page=checkpoints" in home.text
    assert 'href="/ranking"' not in home.text
    for path, code in {
        "/checkpoints": 200,
        "/checkpoint?variant=mine": 200,
        "/checkpoint?variant=other": 404,
        "/checkpoint": 404,
        "/model?variant=mine": 404,
        "/ranking": 404,
        "/events?page=ranking": 404,
    }.items():
        assert site.get(path).status_code == code, path
    assert not (tmp_path / "looks.jsonl").exists()
