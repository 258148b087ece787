"""Where Chromium is on this machine. Run as a program it is installed first, if need be: tox -e browser does that."""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
APT = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", "chromium-headless-shell"]


def own() -> str | None:
    """The one that playwright has downloaded."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if os.path.exists(path) else None


def find() -> str | None:
    """The program, None if there is none. $CPBCG_CHROMIUM comes first."""
    named = os.environ.get("CPBCG_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None) or own()


def install() -> str | None:
    """From playwright's own server; where that cannot be reached, from the package index of Debian."""
    subprocess.run([sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"])
    if not own() and shutil.which("apt-get") and os.geteuid() == 0:
        subprocess.run(["apt-get", "-qq", "update"])
        subprocess.run(APT, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
    return find()


if __name__ == "__main__":
    found = find() or install()
    sys.exit(0 if found else "no Chromium: install one, or set CPBCG_CHROMIUM to the program")
