# bash completion of ollamactl: click writes it for its own release when the first TAB asks.
eval "$(_OLLAMACTL_COMPLETE=bash_source ollamactl)"
