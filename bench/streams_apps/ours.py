"""The workloads in Barnabas: `python ours.py WORKLOAD BOOTSTRAP PREFIX FOLDER`."""

import sys

from barnabas.streams import App, tumbling

TASKS = 2


def app_of(workload: str, bootstrap: str, prefix: str) -> App:
    app = App(f"{prefix}-app", bootstrap=bootstrap, tasks=TASKS)
    records = app.stream(f"{prefix}-in")
    if workload == "words":
        words = records.flat_map_values(lambda line: line.split()).group_by(lambda k, v: v)
        words.count().to_stream().to(f"{prefix}-out")
    elif workload == "windows":
        windows = records.group_by_key().windowed_by(tumbling("1 hour"))
        windows.count().to_stream(lambda k, v: k.key).to(f"{prefix}-out")
    elif workload == "filter":
        kept = records.filter(lambda k, v: v.startswith("v"))
        kept.map_values(lambda value: value.upper()).to(f"{prefix}-out")
    else:
        table = app.table(f"{prefix}-table")
        records.join(table, lambda value, row: f"{value} {row}").to(f"{prefix}-out")
    return app


if __name__ == "__main__":
    app_of(*sys.argv[1:4]).run(checkpoint_dir=sys.argv[4])
