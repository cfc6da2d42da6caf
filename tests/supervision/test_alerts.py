"""Commands that are started when a run fails and when the study ends."""

import pytest

import made_study
from addnorm.supervision.alerts import Alerts


@pytest.fixture
def study(tmp_path):
    """Nine runs, of which three have failed and one has diverged."""
    return made_study.failed(tmp_path / "study")


def test_each_failure_is_told_once_with_its_facts(study, tmp_path):
    told = tmp_path / "told"
    alerts = Alerts(
        None, f'echo "$ADDNORM_EVENT $ADDNORM_RUN $ADDNORM_STATE $ADDNORM_REASON" >> {told}', say=pytest.fail
    )
    early = [status for status in study.statuses() if status.run != "v4m52-s2"]
    alerts.update(study, early)  # failures of an earlier command
    alerts.update(study, study.statuses())
    alerts.end(study, study.statuses())
    assert told.read_text() == "failure v4m52-s2 failed the loss became nan at step 8\n"


def test_the_end_is_told_with_the_counts(study, tmp_path):
    told = tmp_path / "told"
    alerts = Alerts(
        f'echo "$ADDNORM_EVENT $ADDNORM_STUDY $ADDNORM_FINISHED/$ADDNORM_RUNS $ADDNORM_FAILED" >> {told}',
        None,
        say=pytest.fail,
    )
    alerts.update(study, study.statuses())
    assert not told.exists()
    alerts.end(study, study.statuses())
    assert told.read_text() == "end made 4/9 4\n"


def test_a_command_that_fails_or_hangs_is_reported_and_left(study):
    said: list[str] = []
    Alerts("exit 3", None, say=said.append).end(study, study.statuses())
    Alerts("sleep 100", None, say=said.append, last_wait_s=0.01).end(study, study.statuses())
    assert said == [
        "addnorm: 'exit 3' ended with status 3.",
        "addnorm: 'sleep 100' did not end within 0.01 s and was stopped.",
    ]
