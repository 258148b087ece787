"""docs/gpu_conformance.md tells what there is. `python gpu_conformance/tests/test_docs.py` writes its table anew."""

import re
from pathlib import Path

import pytest
import torch

from gpu_conformance.__main__ import main
from gpu_conformance.plants import PLANTS
from gpu_conformance.scenarios import WORKLOADS, Asked, groups

ROOT = Path(__file__).parents[2]
PAGE, TOX, WORKFLOW = ROOT / "docs" / "gpu_conformance.md", ROOT / "tox.ini", ROOT / ".github" / "workflows" / "gpu.yml"
BEGIN, END = "<!-- plants -->\n", "<!-- end of plants -->"


def planted():
    rows = ["| name | the mistake | caught by | public bug |", "|---|---|---|---|"]
    for name, plant in PLANTS.items():
        caught = ", ".join(f"`{invariant}`" for invariant in plant.caught_by)
        rows.append(f"| `{name}` | {plant.what} | {caught} | {plant.source.replace(' ', ', ')} |")
    return "\n".join(rows) + "\n"


def test_the_table_of_planted_defects_is_the_catalogue():
    assert PAGE.read_text().split(BEGIN)[1].split(END)[0] == planted()


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_is_explained(workload):
    assert f"| `{workload}` |" in PAGE.read_text()


def nightly(key):
    """The sizes that the workflow names under a key."""
    lines = re.findall(rf"^.*\b{key}:.*$", WORKFLOW.read_text(), re.MULTILINE)
    return sorted({tuple(map(int, text.split(","))) for line in lines for text in re.findall(r'"([0-9,]+)"', line)})


@pytest.mark.parametrize("cp_sizes", nightly("cp_sizes"))
@pytest.mark.parametrize("buckets", [(), *nightly("buckets")])
def test_what_runs_at_night_on_gpus_can_be_captured(cp_sizes, buckets, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: max(cp_sizes))
    made = groups(Asked(driver="nccl", cp_sizes=cp_sizes, buckets=buckets, batches=1))
    assert {(one.driver, one.server.cp_size) for one in made} == {("nccl", size) for size in cp_sizes}
    assert all(one.server.capture_num_tokens[-1] == buckets[-1] for one in made if buckets)


COMMANDS = re.findall(r"^.*-m gpu_conformance(.*)$", TOX.read_text().replace("\\\n", ""), re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_tox_runs_on_gpus_is_one(command):
    words = re.sub(r"{env:.*?}}", "folder", re.sub(r"{posargs:(.*)}", r"\1", command)).split()
    assert main.make_context("gpu_conformance", words).params["driver"] in ("lockstep", "nccl")


def test_tox_runs_on_gpus_in_every_way_there_is():
    assert len(COMMANDS) == 3


if __name__ == "__main__":
    head, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(head + BEGIN + planted() + END + rest.split(END)[1])
