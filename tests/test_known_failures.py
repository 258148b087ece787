"""Known failures: what the file may say, and that a check with them changes the exit code and nothing else."""

import json
import shlex
from xml.etree import ElementTree

import pytest

from cpbcg_ref import cli
from cpbcg_ref.checking.known import KnownFailure, as_known, covering, read_known_failures
from cpbcg_ref.checking.results import Result
from cpbcg_ref.errors import InvalidInput

ENTRY = '[[failure]]\nid = "select.fits-tokens"\nreason = "smallest bucket"\nlink = "https://example.org/1"\n'
ENGINE = """
from cpbcg_ref.engines.reference import Reference

class Smallest(Reference):
    name, version = "smallest", "1.5"
    roots = (__file__,)

    def select_replay_bucket(self, *, num_tokens, capture_num_tokens, **question):
        if num_tokens > 100:
            return capture_num_tokens[0]
        question["capture_num_tokens"] = capture_num_tokens
        return super().select_replay_bucket(num_tokens=num_tokens, **question)
"""


def known(name="select.pure", **options):
    return KnownFailure(id=name, reason="r", link="l", **options)


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "known.toml"
        path.write_text(text)
        return read_known_failures(path)

    return read


def test_entries_are_read_in_order_with_and_without_a_range(read):
    found = read(ENTRY + ENTRY.replace("fits-tokens", "pure") + 'releases = ">=0.5.19,<0.5.22"\n')
    assert [(one.id, one.releases) for one in found] == [
        ("select.fits-tokens", ""),
        ("select.pure", ">=0.5.19,<0.5.22"),
    ]


def test_a_file_without_entries_is_fine(read):
    assert read("# all fixed\n") == ()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            ENTRY.replace("fits-tokens", "fit-tokens"),
            "no invariant is called 'select.fit-tokens': did you mean select.fits-tokens?",
        ),
        (ENTRY.replace('reason = "smallest bucket"\n', ""), "missing required field `reason` - at `$.failure[0]`"),
        (ENTRY.replace("smallest bucket", ""), "Expected `str` matching regex '\\\\S' - at `$.failure[0].reason`"),
        (ENTRY.replace('link = "https://example.org/1"\n', ""), "missing required field `link` - at `$.failure[0]`"),
        (ENTRY + ENTRY.replace('"smallest bucket"', "3"), "Expected `str`, got `int` - at `$.failure[1].reason`"),
        (ENTRY + 'release = "1"\n', "unknown field `release` - at `$.failure[0]`"),
        (ENTRY.replace("failure", "failures"), "unknown field `failures`"),
        ('failure = "select.pure"', "Expected `array`, got `str` - at `$.failure`"),
        (ENTRY + 'releases = "0.5.18"\n', "releases is '0.5.18': write a range such as '>=0.5.19,<0.5.22'"),
        ("[[failure]", "cannot be read as TOML: "),
    ],
)
def test_a_file_that_cannot_be_meant_so_is_refused_with_the_file_the_place_and_the_rule(read, tmp_path, text, sentence):
    with pytest.raises(InvalidInput) as refused:
        read(text)
    assert str(refused.value).startswith(f"{tmp_path / 'known.toml'}: ")
    assert sentence in str(refused.value)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(InvalidInput, match=r"none\.toml: cannot be read as TOML: .*No such file"):
        read_known_failures(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("releases", "covered"),
    [("", True), (">=0.5.19,<0.5.22", True), ("==0.5.21", True), ("<0.5.21", False), ("!=0.5.21", False)],
)
def test_an_entry_covers_the_releases_of_its_range(releases, covered):
    assert ("select.pure" in covering([known(releases=releases)], "0.5.21")) == covered


def test_a_release_candidate_lies_in_a_range_too():
    assert covering([known(releases=">=0.5.19")], "0.5.22rc1")


def test_of_several_entries_the_first_that_covers_the_version_counts():
    entries = [known(releases="<2"), known(releases=">=2"), known()]
    assert covering(entries, "2.1")["select.pure"].releases == ">=2"


def test_a_version_that_no_range_can_be_compared_with_is_refused():
    assert covering([known()], "my branch")
    with pytest.raises(InvalidInput, match=r"version is 'my branch': .* leave releases out"):
        covering([known(releases="<2")], "my branch")


@pytest.mark.parametrize(
    ("outcome", "message", "shown", "said", "marked"),
    [
        ("fail", "wrong", "fail", "wrong", True),
        ("pass", "", "error", "listed as a known failure (r), but it no longer fails: remove its entry", False),
        (
            "pass",
            "asked in part only: x",
            "pass",
            "asked in part only: x; listed as a known failure (r): whether",
            False,
        ),
        ("skip", "no x", "skip", "no x; listed as a known failure (r): whether it still fails was not seen", False),
        ("unwitnessed", "never", "unwitnessed", "never; listed as a known failure (r): whether it still", False),
        ("error", "KeyError", "error", "KeyError; listed as a known failure (r): whether it still fails", False),
    ],
)
def test_every_outcome_of_a_listed_id_is_told(outcome, message, shown, said, marked):
    found = as_known(Result(invariant="a.b", level="MUST", outcome=outcome, message=message), known())
    assert (found.outcome, found.known, found.reason) == (shown, marked, "r" if marked else "")
    assert found.message.startswith(said)


def test_what_is_not_listed_stays_as_it_is():
    found = Result(invariant="a.b", level="MUST", outcome="pass")
    assert as_known(found, None) is found


@pytest.fixture
def check(tmp_path, capsys):
    """check(entries, options) -> exit code, JSON, stdout of a check of `Smallest`."""
    (tmp_path / "smallest.py").write_text(ENGINE)

    def check(entries, *options, select="select.fits-tokens"):
        (tmp_path / "known.toml").write_text(entries)
        files = ["--json", f"{tmp_path / 'found.json'}", "--junit", f"{tmp_path / 'found.xml'}"]
        told = [*files, "--known-failures", f"{tmp_path / 'known.toml'}", "--profile", "dev", "--no-save", *options]
        with pytest.raises(SystemExit) as end:
            cli.main(["check", f"{tmp_path / 'smallest.py'}:Smallest", "--select", select, *told])
        found = tmp_path / "found.json"
        return end.value.code, json.loads(found.read_text()) if found.exists() else None, capsys.readouterr()

    return check


def test_a_known_failure_stays_a_failure_and_only_the_exit_code_changes(check, tmp_path):
    code, found, printed = check(ENTRY)
    row = found["results"][0]
    assert (code, row["outcome"], row["known"]) == (0, "fail", True)
    assert (row["reason"], row["link"]) == ("smallest bucket", "https://example.org/1")
    assert found["summary"]["must_violated"] == found["summary"]["known"] == ["select.fits-tokens"]
    assert "KNOWN select.fits-tokens: bucket " in printed.out
    case = ElementTree.parse(tmp_path / "found.xml").find(".//skipped")
    assert case.get("message").startswith("known: smallest bucket (https://example.org/1): bucket ")
    assert case.text == row["message"]  # the case was not shrunk: no picture of it


def test_a_failure_that_is_not_listed_counts(check):
    assert check(ENTRY, select="select.fits-tokens,select.minimal,select.complete,select.captured")[0] == 1
    assert check(ENTRY + 'releases = ">=2"\n')[0] == 1


def test_a_known_failure_is_not_shrunk_and_its_command_finds_it_again_and_shrinks_it(check, capsys):
    _, found, _ = check(ENTRY)
    with pytest.raises(SystemExit) as end:
        cli.main([*shlex.split(found["results"][0]["reproduce"])[1:], "--no-save", "--json", "-"])
    (again,) = json.loads(capsys.readouterr().out)["results"]
    assert (end.value.code, again["outcome"], again["known"]) == (1, "fail", False)
    known_case, case = found["results"][0]["counterexample"]["case"], again["counterexample"]["case"]
    assert known_case["num_tokens"] > case["num_tokens"] or len(str(known_case)) > len(str(case))


def test_an_entry_that_no_longer_fails_is_an_error(check):
    code, found, printed = check(ENTRY.replace("select.fits-tokens", "layout.nonempty"), select="layout.nonempty")
    assert (code, found["results"][0]["outcome"]) == (2, "error")
    assert "remove its entry" in found["results"][0]["message"]
    assert "ERROR layout.nonempty: listed as a known failure (smallest bucket)" in printed.out


def test_an_entry_that_was_not_selected_says_nothing(check):
    code, found, _ = check(ENTRY, select="layout.nonempty")
    assert (code, [row["invariant"] for row in found["results"]]) == (0, ["layout.nonempty"])


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 0)])
def test_a_known_should_counts_with_strict_neither(capsys, tmp_path, options, code):
    (tmp_path / "known.toml").write_text(ENTRY.replace("select.fits-tokens", "delay.chunk-counts"))
    told = ["--select", "delay.chunk-counts", "--known-failures", f"{tmp_path / 'known.toml'}", "--no-save"]
    with pytest.raises(SystemExit) as end:
        cli.main(["check", "reference", *told, *options])
    assert end.value.code == code
    with pytest.raises(SystemExit) as end:
        cli.main(["check", "reference", "--select", "delay.chunk-counts", "--no-save", *options])
    assert end.value.code == (1 if options else 0)


def test_a_bad_file_is_one_sentence_before_anything_is_checked(check):
    code, found, printed = check(ENTRY.replace("smallest bucket", ""))
    assert (code, found) == (2, None)
    assert printed.err.startswith("error: ")
    assert "Traceback" not in printed.err
