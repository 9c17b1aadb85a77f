"""The app that test_streams_in_python.py kills: `python words.py BOOTSTRAP TOPIC CHECKPOINTS`."""

import sys

from barnabas.streams import App


def app_of(bootstrap: str, topic: str) -> App:
    """Counts the words of a topic's lines."""
    app = App(topic, bootstrap=bootstrap, tasks=2)
    words = app.stream(f"{topic}-lines").flat_map_values(lambda line: line.split())
    words.group_by(lambda k, v: v).count(name="counts").to_stream().to(f"{topic}-counts")
    return app


if __name__ == "__main__":
    app_of(sys.argv[1], sys.argv[2]).run(checkpoint_dir=sys.argv[3])
