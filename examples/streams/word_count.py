"""How often each word has come: `barnabas streams run word_count:app`."""

import re

from barnabas.streams import App

app = App("word-count")
(
    app.stream("lines")
    .flat_map_values(lambda line: re.findall(r"\w+", line.lower()))
    .group_by(lambda k, v: v)
    .count(name="counts")
    .to_stream()
    .to("word-counts")
)
