#!/usr/bin/python
# Copyright 2026, the ollamactl maintainers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: doctor
short_description: What is wrong with an Ollama host
version_added: 0.1.0
description:
  - Findings with the root cause first, each with its evidence and a remedy. Touches nothing, also while a change of the
    host is open, which it reports.
extends_documentation_fragment:
  - ollamactl.host.common
  - ollamactl.host.common.reads
options:
  fail_on:
    description: Fail the task for findings from this severity on.
    type: str
    choices: [error, warning, info, never]
    default: error
  only:
    description: Ids of checks that are run; all where none is named.
    type: list
    elements: str
    default: []
  ignore:
    description: Ids of checks whose findings are counted and not reported.
    type: list
    elements: str
    default: []
  model:
    description: Report what this model is the reason of; of the host, its errors only.
    type: str
seealso:
  - module: ollamactl.host.info
"""

EXAMPLES = r"""
- name: Fail where something is wrong
  ollamactl.host.doctor:

- name: Collect findings for a report
  ollamactl.host.doctor:
    fail_on: never
  register: health
"""

RETURN = r"""
findings:
  description: What was found, worst first.
  returned: always
  type: list
  elements: dict
  contains:
    check:
      description: Id of the check, for C(ollamactl explain).
      type: str
    severity:
      description: One of error, warning and info.
      type: str
    summary:
      description: What is wrong.
      type: str
    evidence:
      description: Lines that show it.
      type: list
      elements: str
    remedy:
      description: A command that cures it.
      type: str
    consequences:
      description: Findings that follow from this one.
      type: list
      elements: raw
skipped:
  description: Checks that could not look, and why.
  returned: always
  type: list
  elements: dict
checks:
  description: How many checks were run.
  returned: always
  type: int
counts:
  description: Number of findings by severity.
  returned: always
  type: dict
  sample: {"error": 0, "warning": 1, "info": 2}
exit_code:
  description: Exit code of the command.
  returned: always
  type: int
open_transaction:
  description: A change of the host that is open, in words; empty where there is none.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ollamactl.host.plugins.module_utils import cli


def main():
    module = AnsibleModule(
        argument_spec=dict(
            cli.COMMON,
            fail_on={"type": "str", "choices": ["error", "warning", "info", "never"], "default": "error"},
            only={"type": "list", "elements": "str", "default": []},
            ignore={"type": "list", "elements": "str", "default": []},
            model={"type": "str"},
        ),
        supports_check_mode=True,
    )
    path = cli.needed(module)
    params = module.params
    argv = [] if params["fail_on"] == "never" else ["--fail-on=%s" % params["fail_on"]]
    argv += ["--only=%s" % name for name in params["only"]] + ["--ignore=%s" % name for name in params["ignore"]]
    argv += ["--model=%s" % params["model"]] if params["model"] else []
    answer = cli.run(module, path, "doctor", *argv)
    if answer.code not in (cli.OK, cli.FINDINGS) and not answer.data.get("findings"):
        cli.fail(module, answer)
    findings = answer.data["findings"]
    found = {
        "changed": False,
        "findings": findings,
        "skipped": answer.data["skipped"],
        "checks": answer.data["checks"],
        "counts": {name: len([f for f in findings if f["severity"] == name]) for name in ("error", "warning", "info")},
        "exit_code": answer.code,
        "open_transaction": answer.open_transaction,
    }
    if answer.code != cli.OK and params["fail_on"] != "never":
        module.fail_json(msg="; ".join("%s: %s" % (f["check"], f["summary"]) for f in findings) or answer.said, **found)
    module.exit_json(**found)


if __name__ == "__main__":
    main()
