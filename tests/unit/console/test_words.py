"""Every sentence of the console has a Chinese translation with the same gaps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas.console
from barnabas.console.pages import SECTIONS
from barnabas.console.rendering import make_environment, translated
from barnabas.console.said import said
from barnabas.console.words import CHINESE, chosen

ROOT = Path(barnabas.console.__file__).parent
IN_TEMPLATE = re.compile(r"""\bt\(\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
IN_LISTS = re.compile(r"""\{% for (?:\w+, )*title in \((.*?)\) (?:if|%\})""", re.S)
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
GAP = re.compile(r"\{(\w+)\}")


def in_templates() -> Iterator[str]:
    for path in ROOT.rglob("*.html"):
        text = path.read_text()
        yield from (ast.literal_eval(literal) for literal in IN_TEMPLATE.findall(text))
        for loop in re.finditer(r"\{% for ([^%]*?(?:title|name)) in \((.*?)\)(?: if [^%]*)? %\}", text, re.S):
            if "t(title)" in text or "t(name)" in text:
                yield from (row[-1] for row in ast.literal_eval(f"[{loop[2]}]"))


def in_modules() -> Iterator[str]:
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "said":
                yield ast.literal_eval(node.args[0])


def sentences() -> list[str]:
    return sorted({*in_templates(), *in_modules(), *(section.title for section in SECTIONS)})


def test_sentences_are_found() -> None:
    assert len(sentences()) > 250


@pytest.mark.parametrize("text", sentences())
def test_it_is_translated_with_its_gaps(text: str) -> None:
    assert sorted(GAP.findall(CHINESE[text])) == sorted(GAP.findall(text))


def test_no_translation_is_left_over() -> None:
    computed = {*_computed()}
    assert sorted(set(CHINESE) - set(sentences()) - computed) == []


def _computed() -> Iterator[str]:
    """Words that templates translate by a value of the data."""
    from barnabas.console.pages.topic import SOURCES

    yield from SOURCES.values()
    yield from ("allow", "deny", "offline", "behind")
    yield from ("pipeline", "query", "connector", "link", "group", "topic", "topics")


def test_what_has_gaps_is_filled_in_both_languages() -> None:
    sentence = said("There is no topic {name}", name="{x}<b>")
    assert translated("en", sentence) == "There is no topic {x}<b>"
    assert "{x}<b>" in translated("zh", sentence)


def test_the_language_is_that_of_the_cookie_or_of_the_browser() -> None:
    assert chosen("", "zh-CN,zh;q=0.9,en;q=0.8") == "zh"
    assert chosen("en", "zh-CN") == "en"
    assert chosen("xx", "fr, de") == "en"


def test_every_template_compiles() -> None:
    environment = make_environment()
    for name in environment.list_templates(extensions=["html"]):
        environment.get_template(name)
