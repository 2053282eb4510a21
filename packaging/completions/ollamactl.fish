# fish completion of ollamactl: click writes it for its own release when the first TAB asks.
_OLLAMACTL_COMPLETE=fish_source ollamactl | source
