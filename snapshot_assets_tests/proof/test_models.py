"""The models of the commit protocol: without a fault as they are, and with one for each rule that is left out."""

from __future__ import annotations

import ast
import re

import pytest

from snapshot_assets_tests.proof.models import DEFECTS, LIMITS, PROOF, SCOPES, TRACES, document, missing_tools, search

MODELS = sorted(PROOF.glob("*.pml"))
PACKAGE = PROOF.parent / "snapshot_assets"
_CODE = re.compile(r"/\* code: (\S+):(\w+) \*/")

needs_spin = pytest.mark.skipif(bool(missing_tools()), reason=f"not installed: {', '.join(missing_tools())}")


@needs_spin
@pytest.mark.parametrize(
    "scope",
    [pytest.param(scope, id=str(scope), marks=[pytest.mark.slow] if scope.large else []) for scope in SCOPES],
)
def test_no_run_of_the_protocol_breaks_a_rule(scope) -> None:
    found = search(scope)
    assert found.trace == ()
    assert found.whole is not scope.part
    assert found.states > 100


@needs_spin
@pytest.mark.parametrize("scope", [*DEFECTS, *LIMITS], ids=str)
def test_each_rule_is_needed(scope) -> None:
    found = search(scope)
    assert found.trace
    assert scope.trace.read_text() == document(scope, found)


def test_each_defect_of_a_model_is_searched_and_its_trace_is_kept() -> None:
    assert {scope.trace for scope in (*DEFECTS, *LIMITS)} == set(TRACES.iterdir())
    assert len(DEFECTS) >= 10
    for path in MODELS:
        tested = set(re.findall(r"(?:#ifn?def |defined\()([A-Z_0-9]+)", path.read_text()))
        actors = {name for scope in (*SCOPES, *DEFECTS, *LIMITS) for name in re.findall("[A-Z_]+", scope.options)}
        settings = {name for name in tested if f"#define {name}" in path.read_text()}
        known = {scope.defect for scope in DEFECTS if scope.model == path.stem}
        assert tested - actors - settings == known


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_each_action_names_the_function_that_it_stands_for(path) -> None:
    named = _CODE.findall(path.read_text())
    for module, function in named:
        tree = ast.parse((PACKAGE / module).read_text())
        assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, (
            module,
            function,
        )
    environment = ("clock", "loss")
    for process in re.split(r"^(?:active )?proctype ", path.read_text(), flags=re.MULTILINE)[1:]:
        assert process.startswith(environment) or _CODE.search(process), process.splitlines()[0]
