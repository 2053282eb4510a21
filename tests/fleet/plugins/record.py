"""A callback of Ansible that writes every result as a line of JSON to $FLEET_RECORD: what the tests look at."""

from __future__ import annotations

import json
import os
import time

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: record
type: notification
short_description: Results as lines of JSON
description: Results as lines of JSON.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "record"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.started = {}

    def _write(self, kind, result):
        task = getattr(result, "task", None) or result._task
        host = (getattr(result, "host", None) or result._host).get_name()
        found = getattr(result, "result", None) or result._result
        line = {
            "kind": kind, "host": host, "action": task.action, "task": task.get_name(), "result": found,
            "started": self.started.get((host, task._uuid)), "ended": time.time(),
        }  # fmt: skip
        with open(os.environ["FLEET_RECORD"], "a") as file:
            file.write(json.dumps(line, default=str) + "\n")

    def v2_runner_on_start(self, host, task):
        self.started[(host.get_name(), task._uuid)] = time.time()

    def v2_runner_on_ok(self, result):
        self._write("ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._write("ignored" if ignore_errors else "failed", result)

    def v2_runner_on_unreachable(self, result):
        self._write("unreachable", result)

    def v2_runner_on_skipped(self, result):
        self._write("skipped", result)

    def v2_playbook_on_stats(self, stats):
        summary = {host: stats.summarize(host) for host in stats.processed}
        with open(os.environ["FLEET_RECORD"], "a") as file:
            file.write(json.dumps({"kind": "stats", "stats": summary}) + "\n")
