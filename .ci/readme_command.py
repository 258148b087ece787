"""Print the Nth fenced `bash` block of the README's "Quick start", so that CI types what a reader types."""

import re
import sys
from pathlib import Path


def command(readme: str, number: int) -> str:
    section = readme.split("## Quick start", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"^```bash\n(.*?)^```", section, flags=re.M | re.S)
    return blocks[number - 1].strip()


if __name__ == "__main__":
    print(command(Path(__file__).parents[1].joinpath("README.md").read_text(), int(sys.argv[1])))
