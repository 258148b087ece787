"""The wheel cache, with a tiny wheel in a local folder as the package index."""

import hashlib
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from cpbcg_ref.engines import wheels
from cpbcg_ref.engines.targets import ENGINES, released
from cpbcg_ref.errors import TargetError

FILES = {
    "toy/__init__.py": "",
    "toy/deep/leaf.py": "VALUE = 520\n",
    "toy/kernel.so": "binary",
    "toy/weights.json": "{}",
    "toy-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\nRequires-Python: >=3.99\n",
    "toy-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: cp311-cp311-manylinux_2_34_x86_64\n",
    "toy-1.0.dist-info/RECORD": "",
}
NAME = "toy-1.0-cp311-cp311-manylinux_2_34_x86_64.whl"


def write_wheel(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that pip takes as its only source, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("CPBCG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(wheels, "PINS", tmp_path / "pins.toml")
    wheels.PINS.write_text("")
    return folder


@pytest.fixture
def toy(index):
    """toy 1.0, published and pinned."""
    wheel = write_wheel(index / NAME, FILES)
    pin(sha256(wheel))
    return wheel


def pin(digest):
    wheels.PINS.write_text(f'[toy]\n"1.0" = {{ file = "{NAME}", sha256 = "{digest}" }}\n')


def in_cache():
    return sorted(path.name for path in wheels.cache_folder("toy", "1.0").parent.glob("*"))


def no_pip_allowed(options):
    raise AssertionError("pip ran")


def test_a_release_is_downloaded_once_and_then_read_from_the_cache(toy, monkeypatch):
    folder = wheels.fetch("toy", "1.0")
    monkeypatch.setattr(wheels, "run_pip", no_pip_allowed)
    assert wheels.fetch("toy", "1.0") == folder
    assert (folder / "toy/deep/leaf.py").read_text() == "VALUE = 520\n"
    assert in_cache() == ["toy-1.0"]


def test_only_python_files_and_metadata_are_unpacked(toy):
    folder = wheels.fetch("toy", "1.0")
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == set(FILES) - {"toy/kernel.so", "toy/weights.json"} | {"cpbcg.json"}


def test_nothing_is_written_to_stdout_and_progress_is_told(toy, capfd):
    told = []
    wheels.fetch("toy", "1.0", progress=told.append)
    assert told == ["downloading toy==1.0", f"unpacking {NAME}"]
    assert capfd.readouterr() == ("", "")


def test_pip_refuses_a_file_with_another_sha256_and_the_message_has_both(toy):
    pin("0" * 64)
    with pytest.raises(TargetError, match=rf"cannot download toy==1.0: .*{'0' * 64}, Got\s+{sha256(toy)}"):
        wheels.fetch("toy", "1.0")
    assert in_cache() == []


def test_a_wrong_sha256_is_refused_even_if_pip_let_it_through(toy, monkeypatch):
    pin("0" * 64)
    monkeypatch.setattr(wheels, "download", lambda *args: toy)
    with pytest.raises(TargetError, match=f"has sha256 {sha256(toy)}, pins.toml says {'0' * 64}"):
        wheels.fetch("toy", "1.0")
    assert in_cache() == []


@pytest.mark.parametrize(
    "name", ["../evil.py", "toy/../../evil.py", "/evil.py", "C:evil.py", "C:\\evil.py", "toy\\..\\evil.py"]
)
def test_a_wheel_with_a_path_out_of_its_folder_is_refused_whole(tmp_path, name):
    wheel = write_wheel(tmp_path / "bad.whl", {"toy/__init__.py": "", name: "EVIL"})
    with pytest.raises(TargetError, match="a path out of its folder: nothing was unpacked"):
        wheels.unpack(wheel, tmp_path / "tree")
    assert list(tmp_path.iterdir()) == [wheel]


def test_a_symbolic_link_in_a_wheel_becomes_a_plain_file(tmp_path):
    link = zipfile.ZipInfo("toy/link.py")
    link.external_attr = 0o120777 << 16
    wheels.unpack(write_wheel(tmp_path / "bad.whl", {link: "/etc/passwd"}), tmp_path / "tree")
    assert not (tmp_path / "tree/toy/link.py").is_symlink()


def test_a_damaged_wheel_is_one_clear_error(tmp_path):
    (tmp_path / "bad.whl").write_bytes(b"not a zip")
    with pytest.raises(TargetError, match=r"bad\.whl is not a readable wheel"):
        wheels.unpack(tmp_path / "bad.whl", tmp_path / "tree")


CHILD = """
import os, sys, time
from pathlib import Path
from cpbcg_ref.engines import wheels
wheels.PINS, meet = Path(sys.argv[1]), Path(sys.argv[2])
"""
KILLED = "wheels.publish = lambda *args: os._exit(9)\n"
MEETING = """
publish = wheels.publish
def wait_for_the_other(*args):
    (meet / str(os.getpid())).touch()
    while len(list(meet.iterdir())) < 2:
        time.sleep(0.01)
    publish(*args)
wheels.publish = wait_for_the_other
"""


def start_fetch(meet, change):
    meet.mkdir(exist_ok=True)
    script = CHILD + change + "print(wheels.fetch('toy', '1.0'))"
    return subprocess.Popen([sys.executable, "-c", script, wheels.PINS, meet], stdout=subprocess.PIPE, text=True)


def test_a_process_killed_after_unpacking_leaves_a_cache_that_still_works(toy, tmp_path):
    assert start_fetch(tmp_path / "meet", KILLED).wait(60) == 9
    assert [name.startswith(".unpacking-") for name in in_cache()] == [True]
    assert (wheels.fetch("toy", "1.0") / "toy/deep/leaf.py").is_file()


def test_an_interrupt_while_unpacking_leaves_nothing_behind(toy, monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(zipfile.ZipFile, "extractall", interrupt)
    with pytest.raises(KeyboardInterrupt):
        wheels.fetch("toy", "1.0")
    assert in_cache() == []


def test_two_processes_that_fetch_the_same_release_at_once_both_get_it(toy, tmp_path):
    both = [start_fetch(tmp_path / "meet", MEETING) for _ in range(2)]
    folders = {process.communicate(timeout=60)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert folders == {str(wheels.cache_folder("toy", "1.0"))}
    assert in_cache() == ["toy-1.0"]


def test_the_slower_of_two_processes_leaves_the_files_that_the_faster_one_reads(toy, tmp_path):
    folder = wheels.fetch("toy", "1.0")
    read_by_the_faster = (folder / "toy/deep/leaf.py").stat().st_ino
    wheels.unpack(toy, tmp_path / "tree")
    wheels.publish(tmp_path / "tree", folder, wheels.cached("toy", "1.0"))
    assert (folder / "toy/deep/leaf.py").stat().st_ino == read_by_the_faster


@pytest.mark.parametrize("marker", ["", "{}", '{"file": "x.whl", "sha256": "00"}', None])
def test_a_cached_release_with_a_wrong_marker_is_built_again(toy, marker):
    folder = wheels.fetch("toy", "1.0")
    leaf = folder / "toy/deep/leaf.py"
    leaf.write_text("VALUE = 521\n")
    (folder / "cpbcg.json").unlink() if marker is None else (folder / "cpbcg.json").write_text(marker)
    assert (wheels.fetch("toy", "1.0") / "toy/deep/leaf.py").read_text() == "VALUE = 520\n"
    assert in_cache() == ["toy-1.0"]


def test_a_file_in_the_place_of_a_cached_release_is_replaced(toy):
    folder = wheels.cache_folder("toy", "1.0")
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    assert (wheels.fetch("toy", "1.0") / "toy/deep/leaf.py").is_file()


def test_a_release_without_a_known_sha256_is_refused_before_any_download(toy, monkeypatch):
    wheels.PINS.write_text("")
    monkeypatch.setattr(wheels, "run_pip", no_pip_allowed)
    with pytest.raises(TargetError, match=r"toy==1\.0 is not a release with a known sha256 .*--allow-unpinned"):
        wheels.fetch("toy", "1.0")


def test_an_allowed_unpinned_release_tells_the_line_that_pins_it(toy):
    wheels.PINS.write_text("")
    first, second = [], []
    wheels.fetch("toy", "1.0", allow_unpinned=True, progress=first.append)
    wheels.fetch("toy", "1.0", allow_unpinned=True, progress=second.append)
    assert first[2:] == second
    assert second[-1] == f'"1.0" = {{ file = "{NAME}", sha256 = "{sha256(toy)}" }}'
    wheels.PINS.write_text("[toy]\n" + second[-1])
    assert wheels.cached("toy", "1.0") == wheels.pins("toy")["1.0"]


@pytest.mark.parametrize(
    "tags",
    [
        "cp311-cp311-manylinux_2_28_x86_64",
        "cp38-abi3-manylinux_2_28_x86_64",
        "cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64",
        "py3-none-any",
    ],
)
@pytest.mark.parametrize("pinned", [True, False])
def test_wheels_for_other_systems_and_pythons_are_found_by_their_tags(index, tags, pinned):
    wheel = write_wheel(index / f"toy-1.0-{tags}.whl", FILES)
    if pinned:
        wheels.PINS.write_text(f'[toy]\n"1.0" = {{ file = "{wheel.name}", sha256 = "{sha256(wheel)}" }}\n')
    assert (wheels.fetch("toy", "1.0", allow_unpinned=not pinned) / "toy/deep/leaf.py").is_file()


def test_a_release_that_does_not_exist_is_one_line_with_pips_reason(index):
    with pytest.raises(TargetError) as caught:
        wheels.fetch("toy", "9.9", allow_unpinned=True)
    assert str(caught.value).startswith("cannot download toy==9.9: No matching distribution found for toy==9.9 (")
    assert "\n" not in str(caught.value)


def test_an_unreachable_index_is_told_from_a_missing_release(index, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    runs, run_pip = [], wheels.run_pip
    monkeypatch.setattr(wheels, "run_pip", lambda options: runs.append(options) or run_pip(options))
    with pytest.raises(TargetError, match=r"cannot download toy==9\.9: connection broken by .*reachable"):
        wheels.fetch("toy", "9.9", allow_unpinned=True)
    assert len(runs) == 1


def test_a_python_without_pip_is_one_clear_error(toy, tmp_path, monkeypatch):
    venv.create(tmp_path / "bare", with_pip=False)
    bare = next((tmp_path / "bare").glob("[bS]*/python*"))
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(TargetError, match=r"has no pip .*ensurepip"):
        wheels.fetch("toy", "1.0")


def test_a_file_named_pip_in_the_working_directory_is_not_run(toy, tmp_path, monkeypatch):
    (tmp_path / "pip.py").write_text("raise SystemExit('the wrong pip')")
    monkeypatch.chdir(tmp_path)
    assert wheels.fetch("toy", "1.0").is_dir()


def test_a_constraint_in_the_environment_does_not_hide_a_release(toy, tmp_path, monkeypatch):
    (tmp_path / "constraints.txt").write_text("toy==2.0\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints.txt"))
    assert wheels.fetch("toy", "1.0").is_dir()


def test_a_cache_that_cannot_be_written_names_the_variable_that_moves_it(toy, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CPBCG_CACHE", str(tmp_path / "file"))
    with pytest.raises(TargetError, match=r"cannot fill the cache .*CPBCG_CACHE"):
        wheels.fetch("toy", "1.0")


def test_a_relative_cache_folder_gives_an_absolute_path(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPBCG_CACHE", "here")
    assert wheels.fetch("toy", "1.0") == Path(tmp_path, "here", "wheels-1", "toy-1.0")


def test_the_shipped_pins_are_whole_and_name_the_release_they_stand_for():
    listed = tomllib.loads(wheels.PINS.read_text())
    assert list(listed["sglang"]) == [f"0.5.{patch}" for patch in range(16, 24)]
    assert set(listed) == {released(name) for name, engine in ENGINES.items() if not engine.tried_on}
    for name, releases in listed.items():
        for version, entry in releases.items():
            assert entry["file"].startswith(f"{name.replace('-', '_')}-{version}-"), entry
            assert len(bytes.fromhex(entry["sha256"])) == 32
