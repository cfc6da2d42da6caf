"""A browser of this machine, which prints a report to PDF."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from addnorm.errors import InputError, JobError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
"""Commands that print a page to PDF, in the order in which they are looked for."""
_LONGEST_S = 120.0


def find_browser() -> str:
    """Path of the first browser that is installed.

    Raises:
        InputError: there is none.
    """
    for name in BROWSERS:
        path = shutil.which(name)
        if path is not None:
            return path
    raise InputError(
        f"--pdf: expected one of the browsers {', '.join(BROWSERS)} on the PATH, got none. Install Chromium, or leave out "
        "--pdf and print the HTML file from any browser."
    )


def print_pdf(browser: str, html: Path) -> Path:
    """Print a report to a PDF of the same name.

    Args:
        browser: path of a browser of Chromium's family.
        html: the report.

    Raises:
        JobError: the browser failed, or took more than two minutes.
    """
    pdf = html.with_suffix(".pdf").resolve()
    with tempfile.TemporaryDirectory() as profile:
        # The report holds no script and loads nothing, so the browser needs no sandbox, which containers do not allow.
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", f"--user-data-dir={profile}"]
        command = [browser, *flags, f"--print-to-pdf={profile}/report.pdf", html.resolve().as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise JobError(
                f"{html}: {browser} did not print it within {_LONGEST_S:.0f} s; the HTML file is complete."
            ) from error
        made = Path(profile) / "report.pdf"
        if done.returncode or not made.is_file():
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise JobError(f"{html}: {browser} did not print it (exit code {done.returncode}): {reason}")
        shutil.move(made, pdf)
    return pdf
