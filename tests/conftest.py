"""Fixtures for tests that need a published release of an engine."""

import functools
import os

import pytest

from cpbcg_ref.engines import wheels
from cpbcg_ref.engines.targets import resolve


def pytest_addoption(parser):
    parser.addoption("--every-release", action="store_true", help="natural experiment on all pinned releases")


@functools.cache
def sglang(version):
    return resolve(f"sglang=={version}")


@pytest.fixture(scope="session")
def release():
    """release("0.5.18") -> the engine. Only with CPBCG_FETCH=1 (tox sets it) it downloads what is not cached."""

    def get(version):
        pytest.importorskip("torch", reason="SGLang's code needs torch: install the torch extra")
        if os.environ.get("CPBCG_FETCH") != "1" and not wheels.cached("sglang", version):
            pytest.skip(f"sglang=={version} is not in the cache; CPBCG_FETCH=1 downloads it")
        return sglang(version)

    return get
