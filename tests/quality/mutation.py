"""After `mutmut run`: at least 95 % of all mutants are killed, and docs/mutation.md lists each other one with a reason.

A mutant is known by its function and its changed line, not by mutmut's number, which moves with every edit.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

LEAST = 95.0  # percent; a timeout, a crash or a mutant without a test is not a kill
LIST = Path(__file__).parents[2] / "docs" / "mutation.md"
ROW = re.compile(r"^\| `(?P<function>[\w.]+)` \| `(?P<line>.+)` \| (?P<reason>.+) \|$", re.MULTILINE)
Mutant = tuple[str, str]  # function, the line as mutated


def main() -> None:
    mutmut("export-cicd-stats")
    counts = json.loads(Path("mutants", "mutmut-cicd-stats.json").read_text())
    alive = {mutated(name): status for name, status in not_killed()}
    print(f"{counts['killed']} of {counts['total']} mutants killed: {share(counts):.1f} %")
    sys.exit("\n".join(problems(counts, alive, LIST.read_text(encoding="utf-8"))) or None)


def mutmut(*arguments: str) -> str:
    return subprocess.run(["mutmut", *arguments], check=True, capture_output=True, text=True).stdout


def not_killed() -> list[tuple[str, str]]:
    return re.findall(r"^ +(\S+): (.+)$", mutmut("results"), re.MULTILINE)


def mutated(name: str) -> Mutant:
    """("layout.Zigzag.loads", "count = [1] * blocks") for cpbcg_ref.layout.xǁZigzagǁloads__mutmut_6."""
    function = re.sub(r"\.x_?|ǁ", ".", name.removeprefix("cpbcg_ref.").rpartition("__mutmut_")[0]).replace("..", ".")
    lines = re.findall(r"^\+(?!\+\+ )(.*)$", mutmut("show", name), re.MULTILINE)
    return function, " ".join(line.strip() for line in lines)


def share(counts: dict[str, int]) -> float:
    return 100 * counts["killed"] / counts["total"]


def listed(text: str) -> dict[Mutant, str]:
    """The reason of each survivor in the table."""
    return {(row["function"], row["line"].replace(r"\|", "|")): row["reason"] for row in ROW.finditer(text)}


def problems(counts: dict[str, int], alive: dict[Mutant, str], text: str) -> list[str]:
    reasons = listed(text)
    found = [f"less than {LEAST:.0f} % of the mutants are killed"] if share(counts) < LEAST else []
    found += [f"{alive[one]}, not in {LIST.name}: {': '.join(one)}" for one in alive if one not in reasons]
    return found + [f"in {LIST.name}, yet killed: {': '.join(one)}" for one in reasons if one not in alive]


if __name__ == "__main__":
    main()
