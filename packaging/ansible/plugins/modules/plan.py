#!/usr/bin/python
# Copyright 2026, the ollamactl maintainers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: plan
short_description: What would fit on an Ollama host
version_added: 0.1.0
description:
  - How much memory a model takes for each number of slots, context and type of cache, and what fits on the host's GPUs.
    Touches nothing, loads nothing, and works while a change of the host is open, which it reports.
extends_documentation_fragment:
  - ollamactl.host.common
  - ollamactl.host.common.reads
options:
  model:
    description: Name of an installed model, or the path of a GGUF file on the target.
    type: str
    required: true
  parallel:
    description: Numbers of slots; V(auto) for as many as fit.
    type: list
    elements: str
    default: []
  context_length:
    description: Contexts of each slot, such as V(8192) or V(8k).
    type: list
    elements: str
    default: []
  kv_cache_type:
    description: Types of the cache.
    type: list
    elements: str
    default: []
  flash_attention:
    description: Instead of what the service has.
    type: bool
  gpu_free:
    description: Free memory of each GPU to assume, such as V(24G); V(0) for none.
    type: list
    elements: str
    default: []
seealso:
  - module: ollamactl.host.config
"""

EXAMPLES = r"""
- name: Would four slots of 32k fit?
  ollamactl.host.plan:
    model: qwen3:8b
    parallel: [1, 4]
    context_length: [8k, 32k]
  register: sizes
"""

RETURN = r"""
plan:
  description: The answer as C(ollamactl plan --json) gives it, in bytes.
  returned: always
  type: dict
open_transaction:
  description: A change of the host that is open, in words; empty where there is none.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ollamactl.host.plugins.module_utils import cli

LISTS = {
    "parallel": "--parallel",
    "context_length": "--context-length",
    "kv_cache_type": "--kv-cache-type",
    "gpu_free": "--gpu-free",
}


def main():
    module = AnsibleModule(
        argument_spec=dict(
            cli.COMMON,
            model={"type": "str", "required": True},
            parallel={"type": "list", "elements": "str", "default": []},
            context_length={"type": "list", "elements": "str", "default": []},
            kv_cache_type={"type": "list", "elements": "str", "default": []},
            flash_attention={"type": "bool"},
            gpu_free={"type": "list", "elements": "str", "default": []},
        ),
        supports_check_mode=True,
    )
    path = cli.needed(module)
    params = module.params
    argv = ["%s=%s" % (flag, ",".join(params[name])) for name, flag in LISTS.items() if params[name]]
    if params["flash_attention"] is not None:
        argv.append("--flash-attention=%s" % ("on" if params["flash_attention"] else "off"))
    answer = cli.run(module, path, "plan", *(argv + ["--", params["model"]]))
    if answer.code != cli.OK:
        cli.fail(module, answer)
    module.exit_json(changed=False, plan=answer.data, open_transaction=answer.open_transaction)


if __name__ == "__main__":
    main()
