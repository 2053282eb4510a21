"""Which running containers use a GPU, as docker and podman tell it."""

from __future__ import annotations

import json

from ollamactl.core.parse.containers import with_gpu
from ollamactl.core.source import Missing
from tests.hosts import TextHost, facts_of

ALL = {"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}


def box(name: str, **config: object) -> dict[str, object]:
    return {"Name": f"/{name}", "HostConfig": config}


def test_every_way_of_giving_a_gpu_is_seen() -> None:
    boxes = [
        box("web", Devices=[], DeviceRequests=None, Runtime="runc"),
        box("all", **ALL),
        box("runtime", Runtime="nvidia"),
        box("node", Devices=[{"PathOnHost": "/dev/nvidia0", "PathInContainer": "/dev/nvidia0"}]),
        box("rocm", Devices=[{"PathOnHost": "/dev/kfd"}, {"PathOnHost": "/dev/dri"}]),
        box("cdi", Devices=[{"PathOnHost": "nvidia.com/gpu=all"}]),
        box("sound", Devices=[{"PathOnHost": "/dev/snd"}]),
        box("other", DeviceRequests=[{"Capabilities": [["tpu"]]}, None]),
    ]
    assert with_gpu(json.dumps(boxes).encode()) == ("all", "runtime", "node", "rocm", "cdi")


def test_what_is_no_such_reply_has_none() -> None:
    for body in (b"", b"{}", b"[1]", b'[{"HostConfig":1}]', b"[" * 5000):
        assert with_gpu(body) == ()


def test_both_engines_are_asked_and_none_is_a_reason() -> None:
    answers: dict[str, str | bytes | Missing] = {
        "command:podman ps": "abc\n", "command:podman inspect abc": json.dumps([box("all", **ALL)]),
    }  # fmt: skip
    assert facts_of(TextHost(answers), fields=("gpu_containers",)).gpu_containers == ("all",)
    nothing = facts_of(TextHost({}), fields=("gpu_containers",))
    assert nothing.gpu_containers is None and nothing.why("gpu_containers").kind == "absent"
