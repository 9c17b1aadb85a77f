"""The web console: see and change what a cluster holds, in a browser.

* `main.py`: the service; `site.py`: what a page is, and the routes that follow from it, as HTML and as the API.
* `pages/`: one folder per page: what it reads and changes (`__init__.py`) and its template.
* `clusters.py`: the clusters, and what is known of them, kept for seconds. `kept.py`: how.
* `rendering.py`, `words/`: templates, numbers and sizes as people read them, English and Chinese.
* `login.py`: sessions; `roles.py`: who may do what.

A page is one function that returns plain data: the page renders it, the API returns it.
"""
