"""`cpbcg diff`: exit codes, what people read, what programs read, and what engines say that is meant for neither."""

import json
import re
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
import toys_diff

from cpbcg_ref import cli
from cpbcg_ref.checking import differing
from cpbcg_ref.checking.differences import Compared, Comparison, Difference, labels
from cpbcg_ref.checking.sides import Described
from cpbcg_ref.engines.contract import Contract
from cpbcg_ref.report import diff as report
from cpbcg_ref.report import diff_markdown

SCHEMA = json.loads(resources.files("cpbcg_ref.report").joinpath("diff.schema.json").read_text())
SMALL = ("--profile", "dev", "-n", "1")
GATE = ("--select", "layout.is_cp_active,layout.shard", *SMALL)


def toy(name):
    return f"{toys_diff.FILE}:{name}"


@pytest.fixture
def run(capsys, monkeypatch):
    """run("A", "B", ...) -> (exit code, stdout, stderr) of `cpbcg diff`."""
    monkeypatch.setattr("signal.signal", lambda *_: None)

    def command(*args):
        with pytest.raises(SystemExit) as end:
            cli.main(["diff", *map(str, args)])
        out, err = capsys.readouterr()
        return end.value.code, out, err

    return command


def engine(version):
    return Described(target=f"toy=={version}", name="toy", version=version, contract=Contract(), lacks={})


DIFFERENCE = Difference(
    case={"kind": "VotesCase", "mid_chunk": (True,), "waiting": (0,)},
    python="VotesCase(mid_chunk=(True,), waiting=(0,))",
    places=(("rank 0", "True", "False"),),
    picture="rank  mid_chunk  prefillable 1.0  prefillable 1.1\n0     True       True             False",
    violates=((), ("delay.agree", "delay.budget (SHOULD)")),
    smallest=True,
)
SAME = {
    "examples": 40,
    "seconds": 0.25,
    "stopped": "40 examples of the profile",
    "witnesses": {"a chunk": 12, "none": 0},
}
RESULTS = (
    Compared(
        function="votes.votes",
        outcome="different",
        examples=3,
        seconds=0.5,
        message="rank 0: True against False",
        stopped="first difference at example 3",
        difference=DIFFERENCE,
    ),
    Compared(
        function="passes.verdict",
        outcome="different",
        examples=3,
        message="rank 0: True against False",
        stopped="first difference at example 3",
        difference=DIFFERENCE,
    ),
    Compared(function="layout.shard", outcome="same", **SAME),
    Compared(function="layout.gather", outcome="same", **SAME | {"unmet": ("none",)}),
    Compared(function="replay.start", outcome="skip", message="toy 1.0: it starts no server"),
    Compared(function="replay.select", outcome="error", message="toy==1.0: KeyError: 'cp' (toy.py:3)"),
)


def made(results=RESULTS):
    how = {"profile": "ci", "seed": 7, "seconds": 4.2}
    return Comparison(engines=(engine("1.0"), engine("1.1")), results=tuple(results), **how)


TERMINAL = """\
A: toy 1.0 (toy==1.0)
B: toy 1.1 (toy==1.1)

function        outcome    examples  seconds
votes.votes     different         3     0.50
passes.verdict  different         3     0.00
layout.shard    same             40     0.25
layout.gather   same             40     0.25
replay.select   error             0     0.00

SKIP replay.start: toy 1.0: it starts no server
ERROR replay.select: toy==1.0: KeyError: 'cp' (toy.py:3)
SAME layout.shard: no difference in 40 examples over 1 witness (a chunk)
SAME layout.gather: no difference in 40 examples over 1 witness (a chunk); never came up: none

DIFFERENT votes.votes: rank 0: True against False

    place   1.0   1.1
    rank 0  True  False

    rank  mid_chunk  prefillable 1.0  prefillable 1.1
    0     True       True             False

  on this case 1.0 violates nothing; 1.1 violates delay.agree, delay.budget (SHOULD)

  smallest case, after `from cpbcg_ref.cases import *`:
    @example(case=VotesCase(mid_chunk=(True,), waiting=(0,)))

  reproduce:
    cpbcg diff toy==1.0 toy==1.1 --select votes.votes --profile ci --seed 7

DIFFERENT passes.verdict: rank 0: True against False

    place   1.0   1.1
    rank 0  True  False

  on the smallest case of votes.votes

toy 1.0 against toy 1.1: 2 functions differ, 2 do not, 1 error, 1 skipped
6 functions in 4.2 s, profile ci, seed 7, exit code 1
"""

MARKDOWN = """\
<!-- cpbcg diff -->
### cpbcg diff: 1 function differs

<code>toy 1&#46;0</code> against <code>toy 1&#46;1</code> (<code>toy==1&#46;0</code> against <code>toy==1&#46;1</code>)

| function | smallest difference | <code>1&#46;0</code> | <code>1&#46;1</code> | violated on that case |
|---|---|---|---|---|
| <code>votes&#46;votes</code> | <code>rank 0</code> | <code>True</code> | <code>False</code> | <code>1&#46;0 violates \
nothing&#59; 1&#46;1 violates delay&#46;agree, delay&#46;budget &#40;SHOULD&#41;</code> |

<details><summary><code>votes&#46;votes</code>: <code>rank 0&#58; True against False</code></summary>

```text
place   1.0   1.1
rank 0  True  False

rank  mid_chunk  prefillable 1.0  prefillable 1.1
0     True       True             False
```

smallest case:

```python
@example(case=VotesCase(mid_chunk=(True,), waiting=(0,)))
```

```bash
cpbcg diff toy==1.0 toy==1.1 --select votes.votes --profile ci --seed 7
```

</details>

**Error** in <code>replay&#46;select</code>: <code>toy==1&#46;0&#58; KeyError&#58; &#39;cp&#39; &#40;\
toy&#46;py&#58;3&#41;</code>

<details><summary>1 without a difference, 1 skipped</summary>

- <code>layout&#46;shard</code>: <code>no difference in 40 examples over 1 witness &#40;a chunk&#41;</code>
- <code>replay&#46;start</code> skipped: <code>toy 1&#46;0&#58; it starts no server</code>

</details>

<sub>Cases that both can be asked; exceptions are compared by kind, without message and line. \
Profile <code>ci</code>, seed 7, 4 s.</sub>
"""


def valid(told):
    found = json.loads(json.dumps(told))
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    return found


@pytest.fixture
def ends(monkeypatch):
    """ends(comparison): with this every comparison ends; ends.calls are its arguments."""

    def ends_with(found):
        ends_with.calls = []

        def diff(*targets, **options):
            ends_with.calls.append((targets, options))
            return found

        monkeypatch.setattr(differing, "diff", diff)

    return ends_with


def test_people_read_this(run, ends):
    ends(made())
    assert run("toy", "toy") == (1, TERMINAL, "")


def test_a_pull_request_is_told_this(run, ends):
    ends(made(RESULTS[:1] + RESULTS[2:3] + RESULTS[4:]))
    assert run("toy", "toy", "--markdown", "-") == (1, MARKDOWN, "")


def test_functions_that_differ_on_one_case_are_told_together(run, ends):
    ends(made(RESULTS[:2]))
    text = run("toy", "toy", "--markdown", "-")[1]
    assert text.count("<details>") == 1
    assert "\n| <code>votes&#46;votes</code>, <code>passes&#46;verdict</code> | <code>rank 0</code> |" in text
    assert "<summary><code>votes&#46;votes</code>, <code>passes&#46;verdict</code>: <code>rank 0&#58; True ag" in text


def test_programs_read_what_the_schema_describes(run, ends, tmp_path):
    ends(made())
    run("toy", "toy", "--json", tmp_path / "x.json")
    found = valid(json.loads((tmp_path / "x.json").read_text()))
    assert found["a"] == {"target": "toy==1.0", "engine": "toy", "version": "1.0", "label": "1.0"}
    assert found["summary"] | {"seconds": 0} == {
        **{"different": 2, "error": 1, "same": 2, "skip": 1, "exit_code": 1},
        **{"seconds": 0, "profile": "ci", "seed": 7},
    }
    assert found["results"][0]["difference"]["places"] == [{"place": "rank 0", "a": "True", "b": "False"}]


def test_the_schema_refuses_a_difference_without_a_case():
    told = json.loads(json.dumps(report.document(made())))
    told["results"][0]["difference"] = None
    with pytest.raises(jsonschema.ValidationError):
        valid(told)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (("same",), 0),
        (("same", "skip"), 0),
        (("different", "error"), 1),
        (("same", "error"), 2),
        (("skip",), 2),
        ((), 2),
    ],
)
def test_exit_codes(run, ends, outcomes, code):
    difference = {"different": DIFFERENCE}
    ends(
        made(
            Compared(function="votes.votes", outcome=one, message="", difference=difference.get(one))
            for one in outcomes
        )
    )
    assert run("toy", "toy", "--json", "-")[0] == code


def test_a_stored_comparison_is_shown_again(run, ends, tmp_path):
    ends(made())
    stored, again = tmp_path / "x.json", tmp_path / "y.json"
    run("toy", "toy", "--json", stored)
    assert run("--from", stored, "--json", again)[:2] == (1, TERMINAL)
    assert again.read_text() == stored.read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "is no comparison"),
        ("{", "cannot be read as JSON"),
        ('{"a": 1}', "is no comparison"),
        ("[" * 100_000, "cannot be read as JSON"),
    ],
)
def test_what_is_no_comparison_is_refused(run, tmp_path, text, says):
    (tmp_path / "x.json").write_text(text)
    code, out, err = run("--from", tmp_path / "x.json", "--markdown", "-")
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("a.py:A",), "name two targets, not 1"),
        (("a.py:A", "b.py:B", "c.py:C"), "name two targets, not 3"),
        (("--from", "x.json", "a.py:A"), "name no target beside --from"),
        (("a.py:A", "b.py:B", "--json", "-", "--markdown", "-"), "cannot both go to stdout"),
        (("a.py:A", "b.py:B", "--select", "replay.selct"), "did you mean replay.select"),
        (("a.py:A", "b.py:B", "--max-time", "soon"), "is no time"),
        (("a.py:A", "b.py:B"), "there is no file"),
        (("sglang==0.0.0", "sglang==0.0.1"), "is not a release with a known sha256"),
        (("torch-x==LATEST", "reference"), "unknown target"),
    ],
)
def test_bad_usage_is_a_sentence_and_exit_code_2(run, args, says):
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


def test_two_toys_that_differ_in_the_gate_end_with_1_and_the_smallest_case(run, tmp_path):
    code, out, err = run(toy("Right"), toy("ShyGate"), *GATE, "--json", tmp_path / "x.json")
    assert code == 1
    assert "    @example(case=LayoutCase(cp_size=2, batch=Batch(lengths=(4,), prefixes=(0,))))" in out
    assert "toy 1 against toy 2: 1 function differs, 1 do not" in out
    found = valid(json.loads((tmp_path / "x.json").read_text()))
    reproduce = found["results"][0]["difference"]["reproduce"]
    assert reproduce.endswith("toys_diff.py:ShyGate --select layout.is_cp_active --profile dev --seed 0")
    assert err == ""


def test_a_target_against_itself_ends_with_0(run):
    code, out, _ = run(toy("Right"), toy("Right"), *GATE)
    assert code == 0
    assert re.search(r"no difference in 45 examples over \d witnesses \(", " ".join(out.split()))
    assert out.splitlines()[-2] == "toy 1 against toy 1: no difference found, 2 compared"


def test_the_latest_release_is_named_by_its_number(run, ends, capsys):
    ends(made())
    _, _, err = run("sglang==LATEST", "reference")
    assert re.match(r"sglang==LATEST is sglang==\d", err)
    ((targets, options),) = [ends.calls[0]]
    assert re.fullmatch(r"sglang==\d+\.\d+\.\d+", targets[0])
    assert options["ids"] is None


def test_an_engine_that_ends_its_process_is_an_error_in_that_family_alone(run):
    code, out, _ = run(toy("Right"), toy("Dies"), "--select", "select.*,layout.shard", *SMALL)  # layout comes first
    assert code == 2
    assert "the engine's code ended the worker process (exit code 3)" in " ".join(out.split())
    assert "SAME select.select_replay_bucket" in out


def test_an_engine_that_hangs_is_left_when_the_time_is_up(run):
    code, out, _ = run(toy("Right"), toy("Hangs"), "--select", "select.*", *SMALL, "--max-time", "1s")
    assert code == 2
    assert "did not come back" in " ".join(out.split())


def test_modules_of_the_same_name_in_two_folders_are_not_mixed_up(run, tmp_path):
    lines = "from toys_diff import Right, ShyGate\n"
    for name, base in (("old", "Right"), ("new", "ShyGate")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "core.py").write_text(f"{lines}Core = {base}\n")
        text = f"import sys\nsys.path.append({str(Path(toys_diff.FILE).parent)!r})\nfrom core import Core as Engine\n"
        (tmp_path / name / "adapter.py").write_text(text)
    old, new = (f"{tmp_path / name / 'adapter.py'}:Engine" for name in ("old", "new"))
    assert run(old, new, *GATE)[0] == 1
    assert run(old, old, *GATE)[0] == 0


def test_what_engines_say_is_no_markup_closes_nothing_and_mentions_nobody(run, tmp_path):
    files = {name: tmp_path / name for name in ("x.json", "x.md")}
    how = ("--json", files["x.json"], "--markdown", files["x.md"], "--select", "bad-layout.*", *SMALL)
    code, out, _ = run(toy("Right"), toy("Hostile"), *how)
    assert code == 1
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", out)
    text = files["x.md"].read_text()
    outside = re.sub(r"^(`{3,})\w+\n.*?\n\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    plain = re.sub(r"<code>[\w ,=+&#;-]*</code>", "", outside)
    assert not re.search(r"[@\[\]\\`\x00-\x08\x0b-\x1f]|https?:|script", plain)
    assert set(re.findall(r"<[^>]*>", plain)) == {
        *("<!-- cpbcg diff -->", "<details>", "</details>", "<summary>", "</summary>", "<sub>", "</sub>")
    }
    assert plain.count("<details>") == plain.count("</details>")
    valid(json.loads(files["x.json"].read_text()))


def test_a_block_of_code_is_not_closed_by_what_stands_in_it():
    assert diff_markdown.fenced("a\n````\nb", "text") == "`````text\na\n````\nb\n`````\n"
    assert diff_markdown.code("`</code>|@a`") == "<code>&#96;&#60;&#47;code&#62;&#124;&#64;a&#96;</code>"


def test_a_comment_stays_below_the_limit_and_says_what_was_left_out():
    long = [
        Compared(
            function=f"passes.f{i}",
            outcome="different",
            message="`" * 9_000,
            difference=Difference(
                **vars(DIFFERENCE)
                | {"python": str(i), "picture": "x" * 9_000, "places": tuple([("`" * 900, "|" * 900, "@" * 900)] * 60)}
            ),
        )
        for i in range(60)
    ]
    text = diff_markdown.markdown(report.document(made(long)))
    assert len(text) < 65_536
    for what in ("row", "case"):
        assert re.search(rf"^\d+ {what}s too long for a comment", text, re.MULTILINE)


def test_many_places_are_counted():
    places = tuple((f"rank {i}", "1", "2") for i in range(20))
    told = report.document(
        made(
            [
                Compared(
                    function="votes.votes",
                    outcome="different",
                    difference=Difference(**vars(DIFFERENCE) | {"places": places}),
                )
            ]
        )
    )
    lines = report.place_lines(told["results"][0]["difference"], told)
    assert (len(lines), lines[-1]) == (14, "and 8 more places")


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (("a", "1", "x.py:A"), ("b", "1", "x.py:B"), ("a", "b")),
        (("a", "1", "a==1"), ("a", "2", "a==2"), ("1", "2")),
        (("a", "1", "a==1"), ("a", "unknown (/home/me/clone)", "a@."), ("a==1", "a@.")),
        (("a", "1", "a==1"), ("a", "1", "a==1"), ("A", "B")),
        (("a", "1", "a==1"), ("a", "1", "/home/me/my/adapter.py:A"), ("A", "B")),
    ],
)
def test_columns_are_called_by_what_tells_the_engines_apart(left, right, expected):
    how = {"contract": Contract(), "lacks": {}}
    both = [Described(name=name, version=version, target=target, **how) for name, version, target in (left, right)]
    assert labels(*both) == expected
