"""Published wheels in a per-user cache: downloaded with pip, checked, unpacked, only ever read. Nothing is installed.

    CACHE/wheels-1/NAME-VERSION/     the wheel's Python files, as the wheel lays them out
        cpbcg.json                   file name and sha256 of that wheel, written last
    CACHE/wheels-1/.unpacking-*/     work in progress, or what a killed process left

A folder gets its final name by one rename, so it is whole or absent; when two processes fetch the same release, the
slower one drops its copy. CACHE is the platform's user cache folder, or $CPBCG_CACHE.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs

from cpbcg_ref.errors import TargetError

PINS = Path(__file__).with_name("pins.toml")
MARKER = "cpbcg.json"
MAX_FILES = 50_000
MAX_BYTES = 1 << 30
LEFTOVER_AGE_S = 24 * 3600
PYTHONS = ("cp311", "cp312", "cp313")
LINUX = ("manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in range(17, 41)))

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One wheel: its file name and the sha256 of its content, in hex."""

    file: str
    sha256: str

    def toml(self, version: str) -> str:
        """The line for pins.toml."""
        return f'"{version}" = {{ file = "{self.file}", sha256 = "{self.sha256}" }}'

    def tags(self) -> list[str]:
        """Options that make pip offer this wheel on any system. Where a name lists several tags, the first will do."""
        python, abi, platform = (part.split(".")[0] for part in self.file.removesuffix(".whl").split("-")[-3:])
        return tags(python, abi, platform)


def tags(python: str, abi: str, *platforms: str) -> list[str]:
    options = [f"--implementation={python[:2]}", f"--python-version={python[2:]}", f"--abi={abi}"]
    return options + [f"--platform={platform}" for platform in platforms]


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


def is_cached(name: str, version: str) -> bool:
    """Can `fetch` answer without a download?"""
    return cached(name, version) is not None


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
        raise TargetError(
            f"{name}=={version} is not a release with a known sha256 (known: {', '.join(pins(name)) or 'none'}): "
            "take one of these, or pass --allow-unpinned to trust what the package index sends"
        )
    found = cached(name, version) or add(name, version, pin, folder, tell)
    if pin is None:
        tell(f"{name}=={version} was not checked against a known sha256; to pin it, add to pins.toml under [{name}]:")
        tell(found.toml(version))
    return folder


def add(name: str, version: str, pin: Pin | None, folder: Path, tell: Tell) -> Pin:
    """Download, check and unpack beside the final place, then move there."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder.parent)
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder.parent, ignore_cleanup_errors=True) as temp:
            tell(f"downloading {name}=={version}")
            wheel = download(name, version, pin, Path(temp))
            found = check(wheel, pin)
            tell(f"unpacking {wheel.name}")
            unpack(wheel, Path(temp, "tree"))
            Path(temp, "tree", MARKER).write_text(json.dumps(asdict(found)), "utf-8")
            publish(Path(temp, "tree"), folder, found)
    except OSError as error:
        raise TargetError(f"cannot fill the cache {folder}: {error} (set CPBCG_CACHE to a writable folder)") from error
    return found


def remove_leftovers(cache: Path) -> None:
    """Remove what killed processes left behind; a young folder may belong to a running one."""
    for leftover in cache.glob(".unpacking-*"):
        with contextlib.suppress(OSError):
            if leftover.stat().st_mtime < time.time() - LEFTOVER_AGE_S:
                shutil.rmtree(leftover)


def download(name: str, version: str, pin: Pin | None, into: Path) -> Path:
    """The wheel file. Without a pin, tags are tried in turn: Linux on x86-64, Python 3.11 and newer."""
    tries = [pin.tags()] if pin else [tags(python, python, *LINUX) for python in PYTHONS]
    requirements = into / "requirements.txt"
    requirements.write_text(f"{name}=={version}" + (f" --hash=sha256:{pin.sha256}" if pin else ""), "utf-8")
    hashes = ["--require-hashes"] if pin else []
    for options in tries:
        ended = run_pip(["--dest", str(into), *options, *hashes, "-r", str(requirements)])
        if ended.returncode == 0:
            return next(into.glob("*.whl"))
        if "Retrying (" in ended.stderr:
            break
    raise TargetError(f"cannot download {name}=={version}: {explain(ended.stderr)}")


def run_pip(options: list[str]) -> subprocess.CompletedProcess[str]:
    """`pip download` with its output kept: ours may be JSON.

    -P: a file named like a module of pip in the working directory must not run. A constraints file in the environment
    speaks about what gets installed, and nothing is.
    """
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", *options]
    environment = {key: value for key, value in os.environ.items() if key != "PIP_CONSTRAINT"}
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace"
    )


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
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return f"{(errors or lines)[-1]} (does the release exist, with a wheel for Linux on x86-64?)"


def check(wheel: Path, pin: Pin | None) -> Pin:
    """Compare the content with the pin once more, whatever pip was configured to do."""
    with wheel.open("rb") as file:
        found = Pin(file=wheel.name, sha256=hashlib.file_digest(file, "sha256").hexdigest())
    if pin is not None and found.sha256 != pin.sha256:
        raise TargetError(f"{wheel.name} has sha256 {found.sha256}, pins.toml says {pin.sha256}: do not use it")
    return found


def unpack(wheel: Path, into: Path) -> None:
    into.mkdir()
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(into, members=wanted(archive.infolist(), wheel.name))
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise TargetError(f"{wheel.name} is not a readable wheel: {error}") from error


def wanted(members: list[zipfile.ZipInfo], wheel: str) -> list[zipfile.ZipInfo]:
    """The members to write: Python files and metadata (version, licence). One bad name condemns the whole wheel.

    Libraries and data stay out: nothing here is imported as an installed package, so they would only fill the disk.
    """
    for member in members:
        is_link = (member.external_attr >> 16) & 0o170000 == 0o120000
        name = member.orig_filename
        if is_link or name.startswith("/") or ".." in name.split("/") or any(mark in name for mark in "\\:\0"):
            raise TargetError(f"{wheel} holds {name!r}: a link or a path out of its folder, so nothing was unpacked")
    kept = [member for member in members if member.filename.endswith(".py") or ".dist-info/" in member.filename]
    size = sum(member.file_size for member in kept)
    if len(kept) > MAX_FILES or size > MAX_BYTES:
        raise TargetError(f"{wheel} holds {len(kept)} files of {size} bytes: more than {MAX_FILES} or {MAX_BYTES}")
    return kept


def publish(tree: Path, folder: Path, found: Pin) -> None:
    """Give the tree its final name. Who comes second keeps the first one's; a wrong or broken one moves out."""
    for attempt in range(5):
        try:
            return os.replace(tree, folder)
        except OSError:
            if read_marker(folder) == found:
                return None
            with contextlib.suppress(OSError):
                os.replace(folder, tree.with_name(f"replaced-{attempt}"))
    raise TargetError(f"{folder} cannot be replaced: remove it, or set CPBCG_CACHE to another folder")
