"""Every test that can be written for SGLang fails where a release is wrong and passes where it is right."""

import pytest
import upstream
from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from upstream import written
from upstream_edits import BROKEN, MENDED, SHOULD

from cpbcg_ref.asking import FAMILIES, CaptureFailed
from cpbcg_ref.invariants import REGISTRY
from cpbcg_ref.report.unittests import forms
from cpbcg_ref.strategies import cases_for


def edited(root, folder, *edits):
    """The release with each (file, old, new) applied."""
    for name, old, new in edits:
        shadow = folder / "sglang/srt" / name
        text = shadow.read_text("utf-8") if shadow.exists() else (root / "sglang/srt" / name).read_text("utf-8")
        assert old in text, f"{name} does not have {old!r}"
        shadow.parent.mkdir(parents=True, exist_ok=True)
        shadow.write_text(text.replace(old, new, 1), "utf-8")
    return upstream.release(root, folder)


RAISES = ("replay.admitted-implies-runs",)  # the engine's own exception shows it; elsewhere an assertion must


def test_every_form_is_tried_here():
    assert set(BROKEN) | set(SHOULD) == set(forms("sglang"))


@pytest.mark.parametrize("form", [form for form in BROKEN if BROKEN[form]], ids="-".join)
def test_a_test_passes_on_a_right_release_and_fails_on_the_same_one_broken(release_folder, tmp_path, form):
    root, (case, edit) = release_folder("0.5.23"), BROKEN[form]
    file = written(tmp_path, form[1], case)
    right, broken = (upstream.outcome(file, tree) for tree in (upstream.release(root), edited(root, tmp_path, edit)))
    assert right.wasSuccessful(), right.failures + right.errors
    assert right.testsRun > 0
    assert broken.failures or (broken.errors and form[1] in RAISES)


@pytest.mark.parametrize("form", SHOULD, ids="-".join)
def test_a_weakness_of_the_policy_fails_until_the_policy_is_another(release_folder, tmp_path, form):
    root, (case, edit) = release_folder("0.5.23"), SHOULD[form]
    file = written(tmp_path, form[1], case)
    assert upstream.outcome(file, upstream.release(root)).failures
    mended = upstream.outcome(file, edited(root, tmp_path, edit))
    assert mended.wasSuccessful(), mended.failures + mended.errors


@pytest.mark.parametrize("invariant", MENDED)
def test_what_no_release_has_mended_passes_once_the_latest_is(release_folder, tmp_path, invariant):
    root, (case, edits) = release_folder("0.5.23"), MENDED[invariant]
    file = written(tmp_path, invariant, case)
    assert not upstream.outcome(file, upstream.release(root)).wasSuccessful()
    mended = upstream.outcome(file, edited(root, tmp_path, *edits))
    assert mended.wasSuccessful(), mended.failures + mended.errors


@pytest.mark.parametrize(
    ("invariant", "version"),
    [
        ("delay.bounded-passes", "0.5.16"),
        ("delay.agree", "0.5.21"),
        ("delay.budget", "0.5.23"),
        ("capture.legal", "0.5.23"),
        ("replay.admitted-implies-runs", "0.5.17"),
    ],
)
def test_a_test_fails_where_the_checker_does(release, tmp_path, invariant, version):
    """Over generated cases of a release that is wrong for some of them."""
    engine, part = release(version), REGISTRY[invariant].parts[0]
    tree, verdicts = upstream.release(engine.root), set()

    @seed(3)
    @settings(max_examples=25, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=HealthCheck)
    @given(cases_for(part.family, engine.contract))
    def agree(case):
        try:
            seen = FAMILIES[part.family].ask(engine, case)
        except CaptureFailed:
            reject()
        wrong = part.check(case, seen, engine.contract)
        passed = upstream.outcome(written(tmp_path, invariant, case), tree).wasSuccessful()
        assert passed == (wrong is None), wrong
        verdicts.add(passed)

    agree()
    assert verdicts == {True, False}
