"""An engine can embed the reference: importing it costs nothing but the standard library."""

import subprocess
import sys

LOADED = "import sys; before = set(sys.modules); import cpbcg_ref; print(*sorted(set(sys.modules) - before))"


def test_importing_cpbcg_ref_loads_the_standard_library_and_its_own_core_only():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    own = {name for name in loaded if name.split(".")[0] == "cpbcg_ref"}
    foreign = {name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names} - own
    assert foreign == set()
    assert own == {"cpbcg_ref"} | {f"cpbcg_ref.{name}" for name in ("errors", "layout", "capture", "replay", "delayer")}
