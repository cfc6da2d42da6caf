"""Makes the pictures of the readmes from a finished study: `make demo`, then `python docs/pictures.py runs/demo`.

docs/images/page-overview.png and page-overview-zh.png are the live page's first screen in a real browser. Needs playwright and
a Chromium, as the tests in tests/browser do.
"""

import shutil
import sys
from pathlib import Path

from addnorm.store import StudyFolder
from addnorm.web.serve import page, serving

IMAGES = Path(__file__).parent / "images"
SIZE = {"width": 1180, "height": 1000}
PICTURES = {"en": "page-overview.png", "zh": "page-overview-zh.png"}


def make(folder: Path, to: Path = IMAGES) -> list[Path]:
    """Take the pictures of a study.

    Args:
        folder: its folder; every run must have ended, or the pictures would show a state that nobody can repeat.
        to: folder of the pictures.
    """
    from playwright.sync_api import sync_playwright

    unfinished = [status.run for status in StudyFolder(folder).statuses() if status.state != "finished"]
    if unfinished:
        sys.exit(f"{folder}: expected finished runs alone, got {len(unfinished)} others, such as {unfinished[0]}.")
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    made = []
    ready = page(folder, port=0)
    with serving(ready), sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for language, name in PICTURES.items():
            tab = opened.new_page(viewport=SIZE)
            tab.goto(f"{ready.url.rstrip('/')}/?lang={language}")
            tab.locator("[data-live-mark=live]").wait_for()
            tab.screenshot(path=to / name)
            made.append(to / name)
        opened.close()
    return made


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make(Path(sys.argv[1]))
