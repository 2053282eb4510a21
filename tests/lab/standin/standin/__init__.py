"""Stand-in of the Ollama server for the lab: same settings, lines, answers and refusals, over a real llama.cpp.

It is worth what tests/contract/test_standin*.py prove against the recordings in tests/recorded.
"""
