"""Whatever is sent to the API, in any shape, is answered: never with a failure of ours."""

from typing import Any

import httpx
import hypothesis
import pytest
from served import Served

from clearhead.recipes import RECIPES
from clearhead.serve.runs import RunManager

schemathesis = pytest.importorskip(
    "schemathesis", reason="schemathesis is a test tool: pip install schemathesis"
)


def test_nothing_sent_makes_the_server_fail(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting a run is asked for, too; only the process that would train is not started."""
    started: list[list[str]] = []
    monkeypatch.setattr(RunManager, "_spawn", lambda self, folder, words: started.append(words))
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    headers = {"origin": served.url}
    sent, failed = 0, []
    settings = hypothesis.settings(max_examples=12, deadline=None, derandomize=True, database=None,
                                   suppress_health_check=list(hypothesis.HealthCheck))  # fmt: skip

    def send(case: Any) -> None:
        nonlocal sent
        if case.operation.path == "/api/runs" and isinstance(case.body, dict) and sent % 2:
            # A name drawn at random is never one of ours, and would be refused before its settings are read.
            case.body["recipe"] = sorted(RECIPES)[sent // 2 % len(RECIPES)]
        answer = case.call(headers=headers, timeout=20)
        sent += 1
        if answer.status_code >= 500:
            failed.append((case.operation.label, answer.status_code, answer.text[:200]))

    for result in schema.get_all_operations():
        settings(hypothesis.given(case=result.ok().as_strategy())(send))()
    assert not failed, failed[:3]
    assert sent > 150
    assert started, "no run would have started; the examples of that route prove little"


def test_every_number_and_every_text_in_a_request_is_bounded(served: Served) -> None:
    schema = httpx.get(f"{served.url}/openapi.json").json()
    shapes = {name: shape for name, shape in schema["components"]["schemas"].items() if "Error" not in name}
    asked = [
        (f"{name}.{field}", option)
        for name, shape in shapes.items()
        for field, about in shape.get("properties", {}).items()
        for option in about.get("anyOf", [about])
    ]
    asked += [
        (f"{path} {parameter['name']}", parameter["schema"])
        for path, methods in schema["paths"].items()
        for about in methods.values()
        for parameter in about.get("parameters", [])
        if parameter["in"] == "query"
    ]
    assert len(asked) > 30
    assert [name for name, option in asked if not bounded(option)] == []


def bounded(option: dict[str, Any]) -> bool:
    if option.get("type") in ("integer", "number"):
        low, high = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}
        return bool(low & set(option)) and bool(high & set(option))
    if option.get("type") == "string":
        return bool({"maxLength", "enum", "const"} & set(option))
    return True
