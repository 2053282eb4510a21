# Copyright 2026, the ollamactl maintainers
# SPDX-License-Identifier: Apache-2.0
"""Calls ``ollamactl … --json`` and reads its envelope. Runs on Python 3.9 and newer of the target."""

from __future__ import annotations

import json

OK, FINDINGS, USAGE, RESTORED, NOT_RESTORED, UNSEEN, REFUSED = range(7)

COMMON = {
    "unit": {"type": "str"},
    "executable": {"type": "path"},
}
FOLDERS = ["/usr/bin", "/usr/local/bin", "/opt/ollamactl/bin"]


class Answer:
    """The envelope of one call."""

    def __init__(self, document):
        self.code = document["exit_code"]
        self.status = document["status"]
        self.data = document["data"] or {}
        self.errors = document["errors"]
        self.open_transaction = document.get("open_transaction", "")

    @property
    def said(self):
        """What went wrong, as one text with the hints."""
        lines = []
        for error in self.errors:
            lines.append(error["text"] + (" (hint: %s)" % error["hint"] if error["hint"] else ""))
        return "; ".join(lines)


def program(module):
    """The path of ollamactl on the target, or None."""
    named = module.params["executable"]
    return module.get_bin_path(named or "ollamactl", required=False, opt_dirs=FOLDERS)


def run(module, path, command, *args):
    """Calls one command. Fails the task where there is no answer that can be read."""
    argv = [path, command, "--json"]
    if module.params["unit"]:
        argv.append("--unit=%s" % module.params["unit"])
    argv += [str(arg) for arg in args]
    code, out, err = module.run_command(argv, environ_update={"LC_ALL": "C.UTF-8", "NO_COLOR": "1"})
    try:
        document = json.loads(out)
        if document["schema"] != 1:
            raise ValueError("schema %s" % document["schema"])
        return Answer(document)
    except (KeyError, TypeError, ValueError) as error:
        module.fail_json(
            msg="%s %s gave no answer that this collection reads: %s" % (path, command, error),
            rc=code, stdout=out, stderr=err,
        )


def needed(module):
    """The path of ollamactl. Fails the task, with what to do, where it is not installed."""
    path = program(module)
    if path is None:
        module.fail_json(
            msg="ollamactl is not installed on the target: apply the role ollamactl.host.ollamactl, or name it by executable",
        )
    return path


def fail(module, answer, **more):
    """Fails the task with what the command said."""
    module.fail_json(
        msg=more.pop("msg", "") or answer.said or "ollamactl ended with %d (%s)" % (answer.code, answer.status),
        errors=answer.errors, exit_code=answer.code, status=answer.status, open_transaction=answer.open_transaction, **more
    )
