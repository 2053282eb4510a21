/* Both programs of the stand-in: `ollama` and `llama-server` are copies of this.
 *
 * A script would show its interpreter in /proc/PID/comm and /proc/PID/cmdline; what reads those must see the names
 * and arguments that a real host shows. So this loads libpython into itself and leaves its own arguments alone.
 * Built with -DPYTHON, -DLIBPYTHON (absolute paths).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The engine's Server sets up its log a second time and so turns on the prefixes and timestamps that its arguments
 * turned off. A symbol of the program comes before one of a library, so this takes the place of that second call;
 * llama_server.py makes the first one itself. */
void _Z11common_initv(void) {}

int main(int argc, char **argv) {
    char self[PATH_MAX], script[PATH_MAX + 64];
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
    if (size < 0) return perror("/proc/self/exe"), 127;
    self[size] = 0;
    char *slash = strrchr(self, '/');
    const char *name = slash + 1;
    *slash = 0;
    snprintf(script, sizeof script, strcmp(name, "llama-server") ? "%s/../lib/ollama/standin_main.py" : "%s/standin_main.py", self);

    void *python = dlopen(LIBPYTHON, RTLD_NOW | RTLD_GLOBAL);
    if (!python) return fprintf(stderr, "%s\n", dlerror()), 127;
    int (*run)(int, char **) = (int (*)(int, char **))dlsym(python, "Py_BytesMain");
    if (!run) return fprintf(stderr, "%s\n", dlerror()), 127;

    char **args = calloc(argc + 8, sizeof *args);
    int n = 0;
    args[n++] = PYTHON; /* from this Python finds its virtual environment */
    args[n++] = "-E";
    args[n++] = "-s";
    args[n++] = "-B";
    args[n++] = script;
    args[n++] = (char *)(strcmp(name, "llama-server") ? "ollama" : "llama-server");
    for (int i = 1; i < argc; i++) args[n++] = argv[i];
    return run(n, args);
}
