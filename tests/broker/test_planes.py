"""Every handler's signature names its plane, its request and its response, and both kinds of node have what it touches."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.broker
from ottla.broker import planes
from ottla.broker.apis import API_TABLE
from ottla.broker.broker import Broker
from ottla.broker.controller_server import ControllerServer
from ottla.protocol.api import request_class, response_class
from ottla.protocol.api_keys import ApiKey

BROKER = Path(ottla.broker.__file__).parent
PLANES = {name: plane for name, plane in vars(planes).items() if name.endswith("Plane")}


def signature(handler: str) -> tuple[str, str, str]:
    """The annotations of context, request and result."""
    module = ast.parse((BROKER / "handlers" / f"{handler}.py").read_text())
    (handle,) = (
        node
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "handle"
    )
    annotations = [argument.annotation for argument in handle.args.args] + [handle.returns]
    aliases = {
        node.target.id: ast.unparse(node.value)
        for node in module.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None
    }
    context, request, result = (ast.unparse(annotation) for annotation in annotations if annotation is not None)
    return context, aliases.get(request, request), result


def plane_of(handler: str) -> str:
    context, _, _ = signature(handler)
    assert context.startswith("RequestContext["), f"{handler}: {context}"
    return context.removeprefix("RequestContext[").removesuffix("]")


def parts(plane: type) -> set[str]:
    """What a plane declares, itself and by the planes that it extends."""
    declared: set[str] = set()
    for base in plane.__mro__:
        if base.__name__ in PLANES:
            declared |= set(inspect.get_annotations(base))
            declared |= {name for name, value in vars(base).items() if isinstance(value, property)}
    return declared


def served() -> Iterator[tuple[ApiKey, str, type]]:
    for key, api in API_TABLE.items():
        if api.broker is not None:
            yield key, api.broker, Broker
        if api.controller is not None:
            yield key, api.controller, ControllerServer


@pytest.mark.parametrize(("key", "handler", "node"), list(served()), ids=lambda value: getattr(value, "__name__", None))
def test_the_node_has_every_part_that_a_handler_may_touch(key: ApiKey, handler: str, node: type) -> None:
    missing = {name for name in parts(PLANES[plane_of(handler)]) if not hasattr(node, name)}
    assert not missing, f"{key.name} on a {node.__name__}"


@pytest.mark.parametrize(("key", "handler"), sorted({(key, handler) for key, handler, _ in served()}))
def test_a_handler_is_typed_with_the_messages_of_its_api(key: ApiKey, handler: str) -> None:
    """`Message` is right only where the handler passes any request on."""
    _, request, result = signature(handler)
    if request == "Message":
        assert handler in {"forwarded", "decided", "quorum"}
        return
    assert request_class(key).__name__ in request
    assert response_class(key).__name__ in result or result in {"Message", "Message | Deferred[Message]"}


def test_no_plane_is_unused() -> None:
    sources = [path.read_text() for path in BROKER.rglob("*.py") if path.name != "planes.py"]
    assert [name for name in PLANES if not any(f"[{name}]" in text or f": {name}" in text for text in sources)] == []


def test_the_broker_needs_no_casts() -> None:
    """A cast hides what a handler touches."""
    casts = [
        f"{path.name}:{node.lineno}"
        for path in BROKER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast"
    ]
    assert casts == []
