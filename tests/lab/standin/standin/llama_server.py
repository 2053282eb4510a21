"""The runner: a real llama.cpp behind the command line of llama-server.

The engine's own parser reads the arguments and the LLAMA_ARG_* variables, so that refusals, warnings and precedence
are its own. xllamacpp does not offer that parser to Python, but exports its symbol.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import sys
import time

_PARSE = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
_INIT = "_Z11common_initv"
_EXAMPLE_SERVER = 12  # enum llama_example of the pinned release; a wrong number refuses --no-webui
_HEADER = 16  # bytes of a Python object before its content: CommonParams holds the engine's struct by value
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nothing is left behind when a test kills the server
    delay = float(os.environ.get("STANDIN_LOAD_DELAY", "0"))
    if delay:
        time.sleep(delay)
    gate = os.environ.get("STANDIN_LOAD_GATE")
    while gate and not os.path.exists(gate):
        time.sleep(0.02)

    # Without this its threads spin at every barrier, which on a machine with other work makes a token take seconds
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from xllamacpp import xllamacpp as engine

    library = ctypes.CDLL(engine.__file__)
    library[_INIT]()
    parse = library[_PARSE]
    parse.restype = ctypes.c_bool
    argv = ["llama-server", *arguments]
    strings = (ctypes.c_char_p * (len(argv) + 1))(*(os.fsencode(text) for text in argv), None)
    params = engine.CommonParams()
    if not parse(len(argv), strings, ctypes.c_void_p(id(params) + _HEADER), _EXAMPLE_SERVER, None):
        return 1

    stop = {signal.SIGTERM, signal.SIGINT}
    try:
        server = engine.Server(params)  # serves /health from here on; returns when the model is loaded
    except RuntimeError:
        sys.stderr.flush()
        os._exit(1)  # the engine has said why; its threads may not end by themselves
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    signal.sigwait(stop)
    os.write(2, b"srv    operator(): operator(): cleaning up before exit...\n")
    del server
    os._exit(0)


def old_runner(arguments: list[str]) -> int:
    """`ollama runner --ollama-engine --model M --port P` of releases 0.11.5 to 0.24: slots and context do not stand in
    its command line, so they come in a variable of our own."""
    given = dict(itertools.pairwise(arguments[1:]))
    model, port = given["--model"], given["--port"]
    rest = os.environ["STANDIN_RUNNER_ARGS"].split()
    return main(["--model", model, "--port", port, "--host", "127.0.0.1", *rest])
