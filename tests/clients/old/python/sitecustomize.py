"""Lets kafka-python 1.3 to 2.0 run on today's Python; their own protocol code stays as it was published.

What has changed under them: `async` became a keyword (1.3 has an argument of that name in its oldest producer),
the abstract classes moved out of `collections`, and 3.12 dropped what their copy of `six` hooks into.
"""

import collections
import collections.abc
import importlib.abc
import importlib.machinery
import re
import sys

import six

for name in ("Mapping", "MutableMapping", "Callable", "Sequence", "Iterable"):
    if not hasattr(collections, name):
        setattr(collections, name, getattr(collections.abc, name))

sys.modules["kafka.vendor.six"] = six
sys.modules["kafka.vendor.six.moves"] = six.moves


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles a module with another name for what is called `async` in it."""

    def get_code(self, fullname):
        source = self.get_data(self.get_filename(fullname)).decode()
        renamed = re.sub(r"\basync\b", "async_", source)
        return compile(renamed, self.path, "exec", dont_inherit=True)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        if not fullname.startswith("kafka.producer."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = Loader(fullname, spec.origin)
        return spec


sys.meta_path.insert(0, Finder())
