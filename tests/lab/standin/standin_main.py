"""Where both programs begin: argv[1] is the program's name, the rest its own arguments."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

if __name__ == "__main__":
    program, arguments = sys.argv[1], sys.argv[2:]
    if program == "llama-server":
        from standin.llama_server import main
    elif arguments[:1] == ["serve"] or arguments[:1] == ["start"]:
        from standin.serve import main
    elif arguments[:1] == ["runner"]:
        from standin.llama_server import old_runner as main
    else:
        from standin.cli import main
    sys.exit(main(arguments))
