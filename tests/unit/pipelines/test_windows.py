"""Windows of aggregates, as files may have them."""

from __future__ import annotations

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError

TEXT = """pipeline: p
source: {{topic: t}}
outputs:
  - topic: o
    aggregate: {{{window}, {more} compute: {{n: count(*)}}}}
"""


def test_a_session():
    spec = parse_spec(
        TEXT.format(
            window="window: {of: at, session: 5 minutes, as: from, end: to}",
            more="by: [user], late: 1 minute, emit: final,",
        )
    )
    window = spec.outputs[0].aggregate.window
    assert (window.every, window.gap, window.names) == (None, "5 minutes", ["from", "to"])


@pytest.mark.parametrize(
    ("window", "more", "message"),
    [
        (
            "window: {of: at, session: 5 minutes, every: 1 hour}",
            "",
            "has every and session; only one of them is allowed",
        ),
        ("window: {of: at}", "", "needs one of every, session"),
        ("window: {of: at, session: 1 hour, slide: 1 hour}", "by: [a],", "slide needs every"),
        ("window: {of: at, session: 1 hour}", "late: 1 minute, emit: final,", "sessions need by"),
        ("window: {of: at, session: 1 hour}", "by: [a],", "sessions need late"),
        (
            "window: {of: at, every: 1 hour, as: a, end: a}",
            "",
            "end is 'a', but that is the field for the start",
        ),
    ],
)
def test_what_is_refused(window, more, message):
    with pytest.raises(PipelineError, match=rf"^pipeline:5: .*{message}"):
        parse_spec(TEXT.format(window=window, more=more))
