"""The workflow files that a user copies: least permissions, pinned actions, and what the steps do."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from test_diff_command import made

from cpbcg_ref.report import diff
from cpbcg_ref.report.diff_markdown import MARK

FOLDER = Path(__file__).parents[1] / "docs" / "workflows"
COMPARE, COMMENT = (FOLDER / name for name in ("cpbcg-diff.yml", "cpbcg-diff-comment.yml"))
BOTH = pytest.mark.parametrize("path", [COMPARE, COMMENT], ids=lambda path: path.stem)
OURS = sorted(FOLDER.parents[1].glob(".github/workflows/*.yml"))


def step(path, name):
    """The script of a named step."""
    text = path.read_text()
    found = re.search(
        rf"- name: {name}\n(?:        (?!run).*\n|          .*\n)*        run: \|\n((?:          .*\n)+)", text
    )
    return textwrap.dedent(found[1])


@pytest.mark.parametrize("path", [COMPARE, COMMENT, *OURS], ids=lambda path: path.stem)
def test_every_action_is_pinned_by_its_commit_and_says_which_version_that_is(path):
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used
    assert [one for one in used if not re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", one)] == []


@BOTH
def test_no_script_holds_what_github_fills_in(path):
    scripts = re.findall(r"run: (?:\|\n((?:          .*\n)+)|(.*))", path.read_text())
    assert scripts
    assert not [script for script in scripts if "${{" in "".join(script)]


def test_the_job_that_runs_the_pull_request_can_write_nothing_and_keeps_no_token():
    text = COMPARE.read_text()
    assert re.search(r"^on: pull_request$", text, re.MULTILINE)
    assert "pull_request_target" not in text
    assert re.search(r"^permissions:\n  contents: read\n\S", text, re.MULTILINE)
    assert text.count("permissions:") == 1
    assert "persist-credentials: false" in text
    assert "secrets." not in text


def test_the_job_that_writes_runs_nothing_of_the_pull_request():
    text = COMMENT.read_text()
    assert "checkout" not in re.sub(r"#.*", "", text)
    assert re.search(r"^permissions: \{\}$", text, re.MULTILINE)
    assert re.search(
        r"^    permissions:\n      actions: read\n      pull-requests: write\n    steps:", text, re.MULTILINE
    )
    assert f"workflows: [{re.search('^name: (.*)$', COMPARE.read_text(), re.MULTILINE)[1]}]" in text
    assert MARK in text


FAKE = """\
#!{python}
import json, sys
from pathlib import Path
args = sys.argv[1:]
with Path("calls").open("a") as log:
    log.write(json.dumps(args) + "\\n")
if "GET" in args:
    print({number!r})
elif "--paginate" in args:
    print({known!r})
"""


@pytest.fixture
def shell(tmp_path):
    """shell(script, gh=...) -> (exit code, output, calls of gh), as the runner's bash would run it."""

    def run(script, *, number="12", known=""):
        tools = tmp_path / "tools"
        tools.mkdir(exist_ok=True)
        fake = FAKE.format(python=sys.executable, number=number, known=known)
        (tools / "gh").write_text(fake)
        (tools / "gh").chmod(0o755)
        (tools / "cpbcg").write_text(f'#!/bin/sh\nexec {sys.executable} -m cpbcg_ref.cli "$@"\n')
        (tools / "cpbcg").chmod(0o755)
        env = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "GITHUB_REPOSITORY": "me/engine"}
        env |= {
            "HEAD": "you:a branch; rm -rf $(x)",
            "HEAD_SHA": "abc",
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        }
        ended = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
        calls = tmp_path / "calls"
        asked = [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
        return ended.returncode, ended.stdout + ended.stderr, asked

    return run


def test_a_first_comment_is_posted(shell):
    code, _, (pulls, comments, last) = shell(step(COMMENT, "post it"))
    assert code == 0
    assert "head=you:a branch; rm -rf $(x)" in pulls
    assert comments[1] == "repos/me/engine/issues/12/comments"
    assert last[1:] == ["repos/me/engine/issues/12/comments", "--method", "POST", "-F", "body=@comment.md", "--silent"]


def test_a_comment_that_is_there_is_updated(shell):
    _, _, calls = shell(step(COMMENT, "post it"), known="77\n78")
    assert calls[-1][1:4] == ["repos/me/engine/issues/comments/77", "--method", "PATCH"]


def test_nothing_is_posted_where_the_pull_request_has_moved_on(shell):
    code, out, calls = shell(step(COMMENT, "post it"), number="")
    assert (code, len(calls)) == (0, 1)
    assert "no open pull request" in out


def test_the_comment_is_written_anew_from_checked_data(shell, tmp_path):
    folder = tmp_path / "from-the-pull-request"
    folder.mkdir()
    told = diff.document(made())
    told["a"]["engine"] = "@everyone"
    (folder / "diff.json").write_text(json.dumps(told))
    (folder / "diff.md").write_text("@everyone look here")
    assert shell(step(COMMENT, "write the comment"))[0] == 0
    text = (tmp_path / "comment.md").read_text()
    assert text.startswith(MARK)
    assert "@" not in text.replace("@example(", "")


def test_data_that_is_no_comparison_makes_no_comment(shell, tmp_path):
    (tmp_path / "from-the-pull-request").mkdir()
    (tmp_path / "from-the-pull-request" / "diff.json").write_text('{"a": "@everyone"}')
    assert shell(step(COMMENT, "write the comment"))[0] == 1
    assert not (tmp_path / "comment.md").exists()


@pytest.mark.parametrize(("ends", "code"), [(0, 0), (1, 0), (2, 1)])
def test_a_difference_does_not_fail_the_job_and_an_error_does(shell, tmp_path, ends, code):
    script = f"cpbcg() {{ echo found > diff.md; return {ends}; }}\n" + step(COMPARE, "compare")
    assert shell(script)[0] == code
    assert (tmp_path / "summary").read_text() == "found\n"
