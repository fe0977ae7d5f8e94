"""Goal: a setting that claims an effect is read by the program, one that claims none is not.
Method: compare the declaration tables with every attribute that a module loads (by its name).
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from kafkalog.settings.setting import Scope, Setting
from kafkalog.settings.tables import BROKER_LEVEL, NO_EFFECT, TOPIC_LEVEL

PACKAGE = Path(__file__).resolve().parents[2] / "kafkalog"
CONFIGS = {"log/log_config.py", "broker/broker_config.py", "settings/server_config.py"}
SETTINGS = [
    setting
    for setting in (*BROKER_LEVEL.values(), *TOPIC_LEVEL.values())
    if setting.scope is not Scope.TOPIC_DEFAULT
]


def attributes(tree: ast.AST) -> set[str]:
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


@cache
def read_fields() -> frozenset[str]:
    """Attributes that code outside the configurations reads, also by way of their properties."""
    reads: set[str] = set()
    derived: dict[str, set[str]] = {}
    for module in PACKAGE.rglob("*.py"):
        name = module.relative_to(PACKAGE).as_posix()
        tree = ast.parse(module.read_text(encoding="utf-8"))
        if name in CONFIGS:
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef):
                    derived.setdefault(node.name, set()).update(attributes(node))
        elif not name.startswith("settings/"):
            reads |= attributes(tree)
    todo = list(reads & derived.keys())
    while todo:
        new = derived[todo.pop()] - reads
        reads |= new
        todo += new & derived.keys()
    return frozenset(reads)


def key_of(setting: Setting) -> str:
    return setting.key


@pytest.mark.parametrize("setting", SETTINGS, ids=key_of)
def test_effect_is_as_declared(setting: Setting) -> None:
    """M03: nobody sets a key in vain, and none is called void that is not."""
    assert setting.effective == (NO_EFFECT not in setting.doc)
    if setting.effective:
        assert setting.field, "an effective key has a field"
        assert setting.field in read_fields(), "declared effective, read by nobody"
    elif setting.field:
        assert setting.field not in read_fields(), "declared without effect, but read"


def test_a_default_without_effect_belongs_to_a_topic_key_without_effect() -> None:
    """M03: a broker key that only gives a default works as its topic key does."""
    for topic_setting in TOPIC_LEVEL.values():
        for synonym in topic_setting.synonyms:
            setting = BROKER_LEVEL[synonym.key]
            if setting.scope is Scope.TOPIC_DEFAULT:
                assert setting.effective == topic_setting.effective, setting.key
