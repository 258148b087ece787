"""docs/gpu_conformance.md tells what there is. `python gpu_conformance/tests/test_docs.py` writes its table anew."""

from pathlib import Path

import pytest

from gpu_conformance.plants import PLANTS
from gpu_conformance.scenarios import WORKLOADS

PAGE = Path(__file__).parents[2] / "docs" / "gpu_conformance.md"
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


if __name__ == "__main__":
    head, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(head + BEGIN + planted() + END + rest.split(END)[1])
