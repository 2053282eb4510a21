#!/usr/bin/python
# Copyright 2026, the ollamactl maintainers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: info
short_description: What is known of an Ollama host
version_added: 0.1.0
description:
  - Host, GPUs, release, settings in each layer, loaded and installed models. Touches nothing, also while a change of
    the host is open, which it reports.
extends_documentation_fragment:
  - ollamactl.host.common
  - ollamactl.host.common.reads
seealso:
  - module: ollamactl.host.doctor
  - module: ollamactl.host.config
"""

EXAMPLES = r"""
- name: What runs here
  ollamactl.host.info:
  register: ollama

- name: Slots of each loaded model
  ansible.builtin.debug:
    msg: "{{ ollama.loaded | map(attribute='name') | list }} on {{ ollama.slots }} slots"
"""

RETURN = r"""
version:
  description: Release of Ollama, empty where it is not known.
  returned: always
  type: str
  sample: 0.33.0
unit:
  description: The service, empty where there is none.
  returned: always
  type: str
  sample: ollama.service
address:
  description: Address that the server listens on.
  returned: always
  type: str
  sample: 127.0.0.1:11434
system:
  description: Name, distribution, architecture, CPUs of the host.
  returned: always
  type: raw
host_memory:
  description: Host memory in bytes.
  returned: always
  type: raw
gpus:
  description: GPUs with their memory in bytes and the processes on them; null where they could not be looked at.
  returned: always
  type: raw
service:
  description: State of the service as systemd has it.
  returned: always
  type: raw
settings:
  description: A row for each setting with its value in each layer, and the layer where it was lost.
  returned: always
  type: list
  elements: dict
mismatches:
  description: Settings that do not run as they were set.
  returned: always
  type: list
  elements: dict
loaded:
  description: Models that are loaded.
  returned: always
  type: list
  elements: dict
installed:
  description: Models that are installed.
  returned: always
  type: list
  elements: dict
slots:
  description: Slots of all loaded models; null where they could not be seen.
  returned: always
  type: raw
running:
  description: Requests that hold a slot now; null where they could not be seen.
  returned: always
  type: raw
waiting:
  description: Requests that wait; null where they could not be seen.
  returned: always
  type: raw
missing:
  description: Why other facts are not known, by name.
  returned: always
  type: dict
open_transaction:
  description: A change of the host that is open, in words; empty where there is none.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ollamactl.host.plugins.module_utils import cli


def main():
    module = AnsibleModule(argument_spec=dict(cli.COMMON), supports_check_mode=True)
    path = cli.needed(module)
    facts = cli.run(module, path, "facts")
    if facts.code != cli.OK:
        cli.fail(module, facts)
    seen = cli.run(module, path, "verify")
    known = facts.data
    layers = seen.data if seen.code in (cli.OK, cli.FINDINGS) else {}
    missing = dict(known["missing"])
    if not layers:
        missing["settings"] = {"kind": seen.status, "detail": seen.said, "hint": ""}
    service = known.get("service")
    module.exit_json(
        changed=False,
        version=known.get("version") or "",
        unit=service["id"] if service else "",
        address=known.get("address") or "",
        system=known.get("system"),
        host_memory=known.get("memory"),
        gpus=known.get("gpus"),
        service=service,
        settings=layers.get("rows", []),
        mismatches=layers.get("mismatches", []),
        loaded=known.get("loaded") or [],
        installed=known.get("installed") or [],
        slots=layers.get("slots"),
        running=layers.get("running"),
        waiting=layers.get("waiting"),
        missing=missing,
        open_transaction=facts.open_transaction,
    )


if __name__ == "__main__":
    main()
