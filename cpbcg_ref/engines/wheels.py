"""Published wheels in a per-user cache: downloaded with pip, checked, unpacked, only ever read. Nothing is installed.

    CACHE/wheels-1/NAME-VERSION/     the wheel's Python files, as the wheel lays them out
        cpbcg.json                   file name and sha256 of that wheel, written last
    CACHE/wheels-1/.unpacking-*/     work in progress, or what a killed process left

A folder gets its final name by one rename, so it is whole or absent; when two processes fetch the same release, the
slower one drops its copy. CACHE is the platform's user cache folder, or $CPBCG_CACHE.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs

from cpbcg_ref.errors import TargetError

PINS = Path(__file__).with_name("pins.toml")
MARKER = "cpbcg.json"
PYTHONS = ("311", "312", "313")
LINUX = ("manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in range(17, 41)))

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One wheel: its file name and the sha256 of its content, in hex."""

    file: str
    sha256: str


def pins(name: str) -> dict[str, Pin]:
    """The releases of an engine whose content is known, oldest first."""
    listed = tomllib.loads(PINS.read_text("utf-8")).get(name, {})
    return {version: Pin(**entry) for version, entry in listed.items()}


def cache_folder(name: str, version: str) -> Path:
    """Where a release lies once it is fetched."""
    cache = os.environ.get("CPBCG_CACHE") or platformdirs.user_cache_dir("cpbcg", appauthor=False)
    return Path(cache).absolute() / "wheels-1" / f"{name}-{version}"


def cached(name: str, version: str) -> Pin | None:
    """The wheel that lies whole in the cache, None if none does or if it is not the one that pins.toml names."""
    found, pin = read_marker(cache_folder(name, version)), pins(name).get(version)
    return found if pin is None or (found is not None and found.sha256 == pin.sha256) else None


def read_marker(folder: Path) -> Pin | None:
    try:
        return Pin(**json.loads((folder / MARKER).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def fetch(name: str, version: str, *, allow_unpinned: bool = False, progress: Tell | None = None) -> Path:
    """Folder of the unpacked release, downloaded if it is not in the cache yet.

    `progress` receives lines for people; for a release that is not in pins.toml one of them is the line to add there.
    Raises TargetError: not in pins.toml (without `allow_unpinned`), no such wheel, no connection, wrong content.
    """
    tell, pin, folder = progress or (lambda line: None), pins(name).get(version), cache_folder(name, version)
    if pin is None and not allow_unpinned:
        unknown = f"is not a release with a known sha256 (known: {', '.join(pins(name)) or 'none'})"
        advice = "take one of these, or pass --allow-unpinned to trust what the package index sends"
        raise TargetError(f"{name}=={version} {unknown}: {advice}")
    try:
        found = cached(name, version) or add(name, version, pin, folder, tell)
    except OSError as error:
        raise TargetError(f"cannot fill the cache {folder}: {error} (set CPBCG_CACHE to a writable folder)") from error
    if pin is None:
        tell(f"{name}=={version} was not checked against a known sha256; to pin it, add to pins.toml under [{name}]:")
        tell(f'"{version}" = {{ file = "{found.file}", sha256 = "{found.sha256}" }}')
    return folder


def add(name: str, version: str, pin: Pin | None, folder: Path, tell: Tell) -> Pin:
    """Download, check and unpack beside the final place, then move there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder.parent, ignore_cleanup_errors=True) as temp:
        tell(f"downloading {name}=={version}")
        wheel, tree = download(name, version, pin, Path(temp)), Path(temp, "tree")
        found = Pin(file=wheel.name, sha256=hashlib.sha256(wheel.read_bytes()).hexdigest())
        if pin is not None and found.sha256 != pin.sha256:  # whatever pip was configured to do
            raise TargetError(f"{wheel.name} has sha256 {found.sha256}, pins.toml says {pin.sha256}: do not use it")
        tell(f"unpacking {wheel.name}")
        unpack(wheel, tree)
        (tree / MARKER).write_text(json.dumps(asdict(found)), "utf-8")
        publish(tree, folder, found)
    return found


def download(name: str, version: str, pin: Pin | None, into: Path) -> Path:
    """The wheel file for Linux on x86-64 and the first of some Pythons that has one, whatever runs here."""
    requirement = into / "requirement.txt"
    requirement.write_text(f"{name}=={version}" + (f" --hash=sha256:{pin.sha256}" if pin else ""), "utf-8")
    for python in PYTHONS:
        tags = [f"--python-version={python}", f"--abi=cp{python}", *(f"--platform={tag}" for tag in LINUX)]
        ended = run_pip([*tags, f"--dest={into}", f"--requirement={requirement}"])
        if ended.returncode == 0:
            return next(into.glob("*.whl"))
        if "No matching distribution" not in ended.stderr or "Retrying (" in ended.stderr:
            break
    raise TargetError(f"cannot download {name}=={version}: {explain(ended.stderr)}")


def run_pip(options: list[str]) -> subprocess.CompletedProcess[str]:
    """`pip download` with its output kept: ours may be JSON.

    -P: a file named like a module of pip in the working directory must not run. A constraints file in the environment
    speaks about what gets installed, and nothing is.
    """
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--implementation=cp", *options]
    environment = {key: value for key, value in os.environ.items() if key != "PIP_CONSTRAINT"}
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, errors="replace")


def explain(stderr: str) -> str:
    """The line of pip's complaint that says most, and what to do."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()] or ["pip gave no reason"]
    if "No module named pip" in stderr:
        return f"{sys.executable} has no pip (run `python -m ensurepip`, or unpack the wheel and name the folder: @DIR)"
    if "DO NOT MATCH THE HASHES" in stderr:
        digests = [line for line in lines if line.startswith(("Expected sha256", "Got"))]
        return f"the file is not the known one: {', '.join(digests)} (another file under the same name: do not use it)"
    if unreachable := [line for line in lines if "Retrying (" in line]:
        return f"{unreachable[-1].partition('after ')[2]} (is the package index of `pip config list` reachable?)"
    return f"{lines[-1].removeprefix('ERROR: ')} (does the release exist, with a wheel for Linux on x86-64?)"


def unpack(wheel: Path, into: Path) -> None:
    """Write the wheel's Python files and metadata (version, licence): nothing else is ever read."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            if leaving := [name for name in names if name.startswith("/") or re.search(r"\.\.(/|$)|[\\:]", name)]:
                raise TargetError(f"{wheel.name} holds {leaving[0]!r}, a path out of its folder: nothing was unpacked")
            archive.extractall(into, [name for name in names if name.endswith(".py") or ".dist-info/" in name])
    except zipfile.BadZipFile as error:
        raise TargetError(f"{wheel.name} is not a readable wheel: {error}") from error


def publish(tree: Path, folder: Path, found: Pin) -> None:
    """Give the tree its final name. Who comes second keeps the first one's; a wrong or broken one moves out."""
    try:
        os.replace(tree, folder)
    except OSError:
        if read_marker(folder) != found:
            os.replace(folder, tree.with_name("replaced"))
            os.replace(tree, folder)
