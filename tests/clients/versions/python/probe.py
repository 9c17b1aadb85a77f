"""One version of a Python client: probe.py CLIENT BOOTSTRAP PREFIX STEP ...

CLIENT is one of the modules beside this file, whose functions are the steps. The topics PREFIX-records and PREFIX-group,
two partitions each, must exist. Prints one line of JSON.
"""

import asyncio
import importlib
import inspect
import json
import os
import sys
import traceback


def main(client: str, bootstrap: str, prefix: str, *steps: str) -> int:
    module = importlib.import_module(client)
    done: list[str] = []
    error = ""
    try:
        for step in steps:
            function = getattr(module, step)
            coroutine = function(bootstrap, prefix)
            if inspect.iscoroutine(coroutine):
                asyncio.run(coroutine)
            done.append(step)
    except BaseException as failure:
        traceback.print_exc()
        error = f"{steps[len(done)]}: {failure!r}"
    print(json.dumps({"ok": not error, "error": error, "done": done, "version": module.version()}))
    sys.stdout.flush()
    return 1 if error else 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    os._exit(code)  # threads of a client that failed do not hold it up
