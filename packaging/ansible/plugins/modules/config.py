#!/usr/bin/python
# Copyright 2026, the ollamactl maintainers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: config
short_description: Change settings of an Ollama host, proven to have taken or put back
version_added: 0.1.0
description:
  - Sets variables of an Ollama service, restarts it only where that is needed, and proves in every layer (files, systemd,
    process, server, runner) that they took. Where one did not, the host is put back as it was and the task fails.
  - Without changes nothing is written and nothing is restarted.
extends_documentation_fragment:
  - ollamactl.host.common
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)), when in diff mode.
    support: full
    details:
      - The diff has the lines of the files that change, and the settings in effect before and after.
  platform:
    description: Target OS/families that can be operated against.
    support: full
    platforms: linux
options:
  state:
    description:
      - V(present) sets what is named and leaves all other settings.
      - V(absent) takes everything of ollamactl away from the unit; no setting may be named then.
    type: str
    choices: [present, absent]
    default: present
  parallel:
    description: E(OLLAMA_NUM_PARALLEL), requests that a loaded model serves at the same time; V(auto) for as many as fit.
    type: str
  context_length:
    description: E(OLLAMA_CONTEXT_LENGTH), tokens of context of each slot.
    type: int
  max_queue:
    description: E(OLLAMA_MAX_QUEUE), requests that may wait for a model to load.
    type: int
  max_loaded_models:
    description: E(OLLAMA_MAX_LOADED_MODELS), models that may be loaded at once.
    type: int
  keep_alive:
    description: E(OLLAMA_KEEP_ALIVE), how long an idle model stays loaded, such as V(30m) or V(-1).
    type: str
  flash_attention:
    description: E(OLLAMA_FLASH_ATTENTION), on or off.
    type: bool
  kv_cache_type:
    description: E(OLLAMA_KV_CACHE_TYPE), such as V(f16), V(q8_0) or V(q4_0).
    type: str
  host:
    description: E(OLLAMA_HOST), the address to listen on.
    type: str
  settings:
    description: Any other variable that Ollama, its engine or the GPU's libraries know, by name.
    type: dict
    default: {}
  secrets:
    description: Variables whose values are shown nowhere and stand in a file that only root reads.
    type: dict
    default: {}
  unset:
    description: Variables that the service must not have, whoever sets them.
    type: list
    elements: str
    default: []
  release:
    description: Variables that are no longer managed.
    type: list
    elements: str
    default: []
  adopt:
    description: Take over variables that others have set in the unit itself or by C(systemctl edit).
    type: bool
    default: false
  models:
    description: Models that are loaded as a proof, besides those that were loaded before.
    type: list
    elements: str
    default: []
  verify:
    description:
      - Compare all layers also where nothing was to be changed, and fail on a setting that does not run as it was set.
    type: bool
    default: true
  drain:
    description: Seconds to wait, before a restart, until no request is in flight.
    type: float
  cut:
    description: With O(drain), restart even if requests are still in flight when the time is over.
    type: bool
    default: false
  start:
    description: Start the service where it does not run.
    type: bool
    default: false
  override:
    description: Ids of refusals to go ahead in spite of, such as V(fit) or V(open_address).
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that a model may take to load.
    type: float
    default: 300
  wait:
    description: Seconds to wait for another change of the host to end.
    type: float
    default: 10
seealso:
  - module: ollamactl.host.info
  - module: ollamactl.host.doctor
  - module: ollamactl.host.plan
"""

EXAMPLES = r"""
- name: Four requests at a time, each with 16k of context, proven with the model that is served
  ollamactl.host.config:
    parallel: 4
    context_length: 16384
    models: [qwen3:8b]
    drain: 60

- name: As many slots as stay on this host's GPU
  ollamactl.host.config:
    parallel: auto
    models: [qwen3:8b]

- name: What would change, as a diff (run with --check --diff, or here alone)
  ollamactl.host.config:
    kv_cache_type: q8_0
    flash_attention: true
    settings:
      OLLAMA_ORIGINS: https://chat.example
  check_mode: true
  diff: true

- name: A proxy with a password
  ollamactl.host.config:
    secrets:
      HTTPS_PROXY: "{{ vault_proxy }}"

- name: Everything of ollamactl away
  ollamactl.host.config:
    state: absent
"""

RETURN = r"""
unit:
  description: The service that was changed.
  returned: when it was found
  type: str
  sample: ollama.service
status:
  description: How it ended.
  returned: always
  type: str
  sample: applied
exit_code:
  description: Exit code of the command.
  returned: always
  type: int
  sample: 0
restarted:
  description: Whether the service was restarted, or would be in check mode.
  returned: always
  type: bool
rolled_back:
  description: Whether the change failed and the host was put back as it was.
  returned: always
  type: bool
changes:
  description: Settings that changed or would change, as they are in effect before and after. Secrets have no values.
  returned: always
  type: list
  elements: dict
  sample: [{"name": "OLLAMA_NUM_PARALLEL", "now": "1", "new": "4", "where": "zz-ollamactl.conf"}]
files:
  description: Files that were or would be written or removed.
  returned: always
  type: list
  elements: str
mismatches:
  description: What did not run as it was set, with the evidence.
  returned: always
  type: list
  elements: dict
steps:
  description: What was done, in order, with what was seen.
  returned: always
  type: list
  elements: dict
settings:
  description: A row for each setting with its value in each layer, as far as it was verified.
  returned: when the layers were compared
  type: list
  elements: dict
  sample: [{"name": "OLLAMA_NUM_PARALLEL", "layers": {"drop-in": "4", "process": "4", "runner": "-np 4"}, "lost": ""}]
models:
  description: Models that were loaded as a proof.
  returned: always
  type: list
  elements: raw
memory:
  description: Memory that models were predicted to take, before and after.
  returned: always
  type: list
  elements: dict
notes:
  description: What else is worth knowing.
  returned: always
  type: list
  elements: str
commands:
  description: What to type where the host could not be put back wholly.
  returned: always
  type: list
  elements: str
history:
  description: Number of the change in the host's history, for C(ollamactl rollback).
  returned: always
  type: raw
advice:
  description:
    - What to type where the server is nothing that C(ollamactl) changes, such as a container of C(docker run); nothing
      was touched then.
  returned: when there is such
  type: dict
  contains:
    way:
      description: How the server runs.
      type: str
    said:
      description: Why it is not changed.
      type: str
    steps:
      description: What to do, each in words, with lines to type or to put into a file.
      type: list
      elements: dict
    undo:
      description: Lines that take it back.
      type: list
      elements: str
errors:
  description: What was refused or went wrong, each with an id and a hint.
  returned: always
  type: list
  elements: dict
open_transaction:
  description: A change of the host that is open, in words; empty where there is none.
  returned: always
  type: str
"""

import os
import re
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ollamactl.host.plugins.module_utils import cli

# Options that have a flag of their own: the settings that people change.
FLAGS = {
    "parallel": "--parallel",
    "context_length": "--context-length",
    "max_queue": "--max-queue",
    "max_loaded_models": "--max-loaded-models",
    "keep_alive": "--keep-alive",
    "flash_attention": "--flash-attention",
    "kv_cache_type": "--kv-cache-type",
    "host": "--host",
}
LISTS = {"unset": "--unset", "release": "--release", "models": "--model", "override": "--override"}


NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def text(value):
    """A value as Ollama reads it: YAML's booleans are 1 and 0 there."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)


def variables(module, option):
    """Names and texts of settings or secrets, in order. Fails the task for what is no variable."""
    found = []
    for name, value in sorted(module.params[option].items()):
        if not NAME.match(name):
            module.fail_json(msg="%s: %r is no name of a variable" % (option, name))
        if value is None:
            module.fail_json(msg="%s: %s has no value; to make it absent name it in unset" % (option, name))
        if isinstance(value, (dict, list)):
            module.fail_json(msg="%s: the value of %s is a %s, not a text" % (option, name, type(value).__name__))
        found.append((name, text(value)))
    return found


def arguments(module, folder):
    """The words of `apply`; secrets stand in files of `folder`."""
    params = module.params
    argv = ["%s=%s" % (flag, text(params[name])) for name, flag in FLAGS.items() if params[name] is not None]
    for name, value in variables(module, "settings"):
        if value.startswith("@"):
            module.fail_json(msg="settings: the value of %s may not begin with @; put it in secrets" % name)
        argv.append("--set=%s=%s" % (name, value))
    for name, value in variables(module, "secrets"):
        handle, path = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(value)
        argv.append("--set=%s=@%s" % (name, path))
    for name, flag in LISTS.items():
        argv += ["%s=%s" % (flag, item) for item in params[name]]
    argv += ["--%s" % name for name in ("adopt", "cut", "start") if params[name]]
    if params["drain"] is not None:
        argv.append("--drain=%s" % params["drain"])
    return argv


def refuse_settings(module):
    """Fails the task where settings stand beside V(state=absent), which takes all of them away."""
    named = [name for name in (*FLAGS, "settings", "secrets", "unset", "release", "adopt") if module.params[name]]
    if named:
        module.fail_json(msg="state=absent takes everything away: %s can not stand beside it" % ", ".join(named))


def diff(answer, secrets):
    """The lines of the files, and the settings in effect."""
    before, after = [], []
    for change in answer.data["changes"]:
        if change["name"] in secrets or change["now"] == change["new"] == "":
            after.append("%s=(not shown)\n" % change["name"])
            continue
        for lines, value in ((before, change["now"]), (after, change["new"])):
            if value:
                lines.append("%s=%s\n" % (change["name"], value))
    found = []
    if answer.data["diff"]:
        found.append({"prepared": answer.data["diff"] + "\n"})
    if before != after:
        header = "settings in effect of %s" % answer.data["unit"]
        texts = {"before": "".join(before), "after": "".join(after)}
        found.append(dict(texts, before_header=header, after_header=header))
    return found


def result(module, answer, changed):
    """What the task returns, whatever happened."""
    data = answer.data
    found = {
        "changed": changed,
        "unit": data.get("unit", ""),
        "status": answer.status,
        "exit_code": answer.code,
        "restarted": bool(data.get("restarted")),
        "rolled_back": bool(data.get("rolled_back")),
        "errors": answer.errors,
        "open_transaction": answer.open_transaction,
        "history": data.get("history"),
    }
    for name in ("changes", "files", "mismatches", "steps", "models", "memory", "notes", "commands"):
        found[name] = data.get(name) or []
    # What was asked for and is so already is no change; a secret's values are not told, so it counts as one.
    found["changes"] = [c for c in found["changes"] if changed and (c["now"] != c["new"] or not c["new"])]
    if data.get("rows"):
        found["settings"] = data["rows"]
    if data.get("advice"):
        found["advice"] = data["advice"]
    if "diff" in data and changed:
        found["diff"] = diff(answer, module.params["secrets"])
    return found


def ended(module, answer):
    """Leaves where the change was refused or failed."""
    if answer.code == cli.OK:
        return
    found = result(module, answer, answer.code == cli.NOT_RESTORED)
    before = {
        cli.RESTORED: "not applied, the host is as it was: ",
        cli.NOT_RESTORED: "not applied, and the host could not be put back wholly: ",
        cli.REFUSED: "refused, nothing was touched: ",
    }.get(answer.code, "")
    said = answer.said or "; ".join(step["text"] for step in found["steps"] if not step["ok"])
    if "advice" in found:
        said = "%s (advice has what to type)" % found["advice"]["said"]
    module.fail_json(msg=before + (said or answer.status), **found)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            cli.COMMON,
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
            parallel={"type": "str"},
            context_length={"type": "int"},
            max_queue={"type": "int"},
            max_loaded_models={"type": "int"},
            keep_alive={"type": "str"},
            flash_attention={"type": "bool"},
            kv_cache_type={"type": "str"},
            host={"type": "str"},
            settings={"type": "dict", "default": {}},
            secrets={"type": "dict", "default": {}, "no_log": True},
            unset={"type": "list", "elements": "str", "default": []},
            release={"type": "list", "elements": "str", "default": []},
            adopt={"type": "bool", "default": False},
            models={"type": "list", "elements": "str", "default": []},
            verify={"type": "bool", "default": True},
            drain={"type": "float"},
            cut={"type": "bool", "default": False},
            start={"type": "bool", "default": False},
            override={"type": "list", "elements": "str", "default": []},
            timeout={"type": "float", "default": 300},
            wait={"type": "float", "default": 10},
        ),
        supports_check_mode=True,
    )
    if module.params["state"] == "absent":
        refuse_settings(module)
    path = cli.program(module)
    if path is None and module.check_mode:
        # The role that installs it has not run here: it only said what it would do.
        empty = cli.Answer({"exit_code": cli.OK, "status": "unknown", "data": {}, "errors": []})
        module.warn("ollamactl is not installed on the target yet, so what would change can not be said")
        module.exit_json(**result(module, empty, module.params["state"] == "present"))
    path = path or cli.needed(module)
    common = ["--timeout=%s" % module.params["timeout"], "--wait=%s" % module.params["wait"]]
    common += ["--check"] if module.check_mode else []
    if module.params["state"] == "absent":
        answer = cli.run(module, path, "reset", *common)
    else:
        with tempfile.TemporaryDirectory(dir=module.tmpdir) as folder:
            answer = cli.run(module, path, "apply", *(arguments(module, folder) + common))
    ended(module, answer)
    found = result(module, answer, bool(answer.data.get("changed")))
    if not module.check_mode and module.params["verify"] and module.params["state"] == "present" and not found.get("settings"):
        seen = cli.run(module, path, "verify")
        if seen.code not in (cli.OK, cli.FINDINGS):
            cli.fail(module, seen, changed=found["changed"])
        found["settings"] = seen.data["rows"]
        found["mismatches"] = seen.data["mismatches"]
        if seen.code == cli.FINDINGS:
            module.fail_json(msg="a setting does not run as it was set: " + "; ".join(
                mismatch["text"] for mismatch in seen.data["mismatches"]), **found)
    module.exit_json(**found)


if __name__ == "__main__":
    main()
