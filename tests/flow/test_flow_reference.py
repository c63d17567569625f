"""The flow reference is generated and never stale."""

from __future__ import annotations

import re
from pathlib import Path

from docs.flow_reference import flow_reference_markdown
from engine.flow.document import EdgeDoc, FlowDoc, LimitsDoc, NodeDoc, RetryDoc
from engine.flow.load import load_flow
from engine.language.filters import FILTERS, TESTS
from engine.nodes.types.registry import node_types

PAGE = Path(__file__).parents[2] / "docs" / "flow-reference.md"


def test_the_page_is_what_the_models_say() -> None:
    """When this fails: `make docs`."""
    assert PAGE.read_text(encoding="utf-8") == flow_reference_markdown()


def test_the_page_names_everything_that_a_flow_can_have() -> None:
    """Every node type, field, output, filter and test is in it."""
    page = flow_reference_markdown()
    for spec in node_types().values():
        assert f"\n### {spec.name}\n" in page
        for name in [*spec.field_names(), *(spec.outputs or ()), *spec.parts]:
            assert f"`{name}`" in page
    models = (FlowDoc, NodeDoc, EdgeDoc, RetryDoc, LimitsDoc)
    fields = [field.alias or key for model in models for key, field in model.model_fields.items()]
    for name in [*FILTERS, *TESTS, *fields]:
        assert f"`{name}`" in page


def test_the_example_on_the_page_loads() -> None:
    """What the page shows as a flow is one."""
    examples = re.findall(r"```yaml\n(.*?)```", flow_reference_markdown(), re.S)
    assert examples
    for example in examples:
        assert load_flow(example, "example.yml").nodes
