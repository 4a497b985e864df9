"""The lab's API server with our definitions gives the answers that a real one gave with Karpenter's."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import yaml

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.kube.transport import Request
from dovetail.lab.apiserver.server import ApiServer
from dovetail.model.kinds.crds import KINDS, definitions
from tests.kinds import kinds_cases as cases

DATA = Path(__file__).parents[1] / "data" / "kinds"
ANSWERS = json.loads((DATA / "answers.json").read_text())
PLURAL = {kind.kind: kind.plural for kind in KINDS}


async def ask(server: ApiServer, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
    headers = {"content-type": "application/json", "accept": "application/json"}
    data = b"" if body is None else json.dumps(body).encode()
    request = Request(method=method, path=path, query=tuple(query.items()), headers=headers, body=data)
    response = await server.handle(request)
    return response.status, json.loads(response.body)


async def serve() -> ApiServer:
    server = ApiServer(clock=Clock(asyncio.get_running_loop(), EPOCH), chance=Chance(1))
    for definition in definitions():
        code, said = await ask(server, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        assert code == 201, said
    await asyncio.sleep(10)
    return server


def path_of(obj: Any) -> str:
    return f"/apis/{obj['apiVersion']}/{PLURAL[obj['kind']]}"


def test_every_recorded_answer_is_given() -> None:
    async def run() -> None:
        server, wrong = await serve(), []
        for name, obj in cases.cases():
            code, said = await ask(server, "POST", path_of(obj), obj, dryRun="All", fieldValidation="Strict")
            answer = ANSWERS["cases"][name]
            found = (code, said.get("message") if code != 201 else None, said.get("spec") if code == 201 else None)
            if found != (answer["code"], answer.get("message"), answer.get("spec")):
                wrong.append((name, found, answer))
        assert wrong == []

    run_virtual(run())


def test_every_recorded_change_is_allowed_or_refused() -> None:
    async def run() -> None:
        server = await serve()
        for name, before, after in cases.moves():
            _, made = await ask(server, "POST", path_of(before), before)
            after = {**after, "metadata": {**after["metadata"], "resourceVersion": made["metadata"]["resourceVersion"]}}
            code, said = await ask(server, "PUT", path_of(before) + "/case", after)
            found = (code, said.get("message") if code != 200 else None)
            assert found == (ANSWERS["moves"][name]["code"], ANSWERS["moves"][name].get("message")), name
            await ask(server, "DELETE", path_of(before) + "/case")

    run_virtual(run())


def test_the_seeds_apply_as_they_stand_or_are_refused_with_the_reason() -> None:
    async def run() -> None:
        server = await serve()
        for seed in sorted((DATA / "seeds").glob("*.yaml")):
            for obj in yaml.safe_load_all(seed.read_text()):
                code, said = await ask(server, "POST", path_of(obj), obj, fieldValidation="Strict")
                if seed.stem == "provisioner-stray":
                    assert code == 400
                    assert said["message"].endswith('unknown field "spec.requirements[2].requirements"')
                else:
                    assert code == 201, said

    run_virtual(run())
