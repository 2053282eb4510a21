"""Messages about the world outside: the registry, downloads, the cloud. Rows as in `messages`."""

from __future__ import annotations

from ollamactl.core.parse.event_row import Event

_UNREACHED = (
    r"(?P<why>i/o timeout|connection refused|connection timed out|no route to host|network is unreachable"
    r"|TLS handshake timeout|no such host|server misbehaving|context deadline exceeded)"
)

NETWORK: tuple[Event, ...] = (
    Event("cloud_unreachable", "model recommendations refresh failed", "msg", "0.30 –", keep=3),
    Event("cloud_unreachable", "model show cloud cache hydration failed", "msg", "0.30 –", keep=3),
    Event("html_reply", "invalid character '<' looking for beginning of value", "text"),
    Event("proxy_error", "proxyconnect", "text"),
    Event("registry_unreached", "request failed: ", "prefix", "of a pull", _UNREACHED, 5, sure=False),
    Event("registry_unreached", "failed to get direct URL; backing off and retrying", "msg", "0.5 –", _UNREACHED, 5,
          sure=False),
    Event("registry_certificate", "x509: ", "text", "of a pull",
          r"https?://\S*(?:ollama|cloudflarestorage|hf\.co|huggingface)\S*.* x509: (?P<why>.{0,200})", 5, sure=False),
    Event("key_empty", "ssh: no key found", "text", "of a pull"),
    Event("registry_reached", "downloading ", "prefix", "of a pull", r"(?P<parts>\d+) \S+ part\(s\)", 3, sure=False),
    Event("pull_stalled", " stalled; retrying", "text", "0.1.25 –",
          r"(?P<blob>[0-9a-f]{12}) part (?P<part>\d+) stalled", sure=False),
    Event("pull_part_failed", " attempt ", "text", "0.1 –",
          r"(?P<blob>[0-9a-f]{12}) part (?P<part>\d+) attempt (?P<attempt>\d+) failed: (?P<why>.{0,400}?), retrying",
          sure=False),
)  # fmt: skip
