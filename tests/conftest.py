"""Fixtures for tests that need a published release of an engine."""

import functools
import json
import os

import pytest

from cpbcg_ref import cli
from cpbcg_ref.engines import wheels
from cpbcg_ref.engines.targets import resolve


def pytest_addoption(parser):
    parser.addoption("--every-release", action="store_true", help="natural experiment on all pinned releases")


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory):
    """No test touches what the user has saved."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CPBCG_STATE", str(tmp_path_factory.mktemp("state")))
        yield


engine_of = functools.cache(resolve)


def fetched(version, name="sglang"):
    """Folder of a release. Only with CPBCG_FETCH=1 (tox sets it) it is downloaded if it is not cached; vLLM never."""
    pytest.importorskip("torch", reason=f"the code of {name} needs torch: install the torch extra")
    fetch = os.environ.get("CPBCG_FETCH") == "1" and name != "vllm"  # a wheel of 300 MB
    if not (fetch or wheels.cached(name, version)):
        advice = f"cpbcg smoke {name}=={version} fetches it" if name == "vllm" else "CPBCG_FETCH=1 downloads it"
        pytest.skip(f"{name}=={version} is not in the cache; {advice}")
    return wheels.fetch(name, version)


@pytest.fixture(scope="session")
def release_folder():
    """release_folder("0.5.18") -> the folder that contains `sglang`; release_folder("0.9.1", "verl")."""
    return fetched


@pytest.fixture(scope="session")
def release():
    """release("0.5.18") -> the engine; release("0.9.1", "verl")."""

    def get(version, name="sglang"):
        fetched(version, name)
        return engine_of(f"{name}=={version}")

    return get


@pytest.fixture
def trials_of(capsys, tmp_path, monkeypatch):
    """trials_of("--select", "overflow") -> (exit code, the JSON, stdout, stderr) of `cpbcg faults`, two trials each."""
    monkeypatch.setattr("signal.signal", lambda *_: None)

    def command(*options):
        file = tmp_path / "faults.json"
        with pytest.raises(SystemExit) as end:
            cli.main(["faults", "--jobs", "1", "--trials", "2", "--json", str(file), *options])
        out, err = capsys.readouterr()
        return end.value.code, json.loads(file.read_text()) if file.exists() else None, out, err

    return command
