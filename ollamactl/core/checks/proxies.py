"""Proxies in front of the server, and those that it or its clients go through."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ollamactl.core.checks.base import Finding, check
from ollamactl.core.checks.pulls import went_on
from ollamactl.core.facts import Facts, Start
from ollamactl.core.needs import NO_SIGNS, Given, Signs


@check(weight=60, explains=("proxy_timeout_60s",))
def proxy_misconfigured(signs: Signs, facts: Facts) -> Iterator[Finding]:
    """The reverse proxy in front is not set up for Ollama.

    Why: it needs a proxy_pass, HTTP/1.1 and no buffering for streams, the Host header, and a long read time-out.
    Seen: the configuration.
    Do: ollamactl front nginx writes one.
    """
    pulls = [e for e in signs.of("proxy_error") if "registry.ollama.ai" in e.text or "pull model manifest" in e.text]
    if pulls:
        yield Finding(
            "error",
            "pulls go through a proxy that does not answer: HTTPS_PROXY of the server",
            signs.quotes(pulls[-1:]),
            "systemctl show -p Environment ollama    # then: sudo ollamactl apply --set HTTPS_PROXY=http://PROXY:PORT",
        )
    elif signs.has("nginx_location") and not signs.has("nginx_proxy_pass"):
        yield Finding(
            "warning", "the proxy's location has no proxy_pass", signs.lines("nginx_location"), "ollamactl front nginx"
        )
    elif (
        signs.has("nginx_proxy_pass")
        and signs.has("gateway_timeout", "stream_broken")
        and not signs.has("nginx_read_timeout")
    ):
        yield Finding(
            "warning",
            "the proxy has the default time-out of 60 s and buffers streams",
            signs.lines("nginx_proxy_pass", "gateway_timeout"),
            "ollamactl front nginx",
        )
    elif signs.has("nginx_bad"):
        yield Finding(
            "warning",
            "the proxy's configuration does not suit Ollama",
            signs.lines("nginx_bad"),
            "ollamactl front nginx",
        )


@check(weight=58, explains=("model_not_pulled", "pull_stalled"))
def proxy_not_in_service(signs: Signs, given: tuple[Given, ...] = (), start: Start | None = None) -> Iterator[Finding]:
    """Pulls fail because the server has no proxy.

    Why: the server pulls, not the command; HTTPS_PROXY of a shell does not reach it.
    Seen: time-outs to the registry, and no proxy in the server's environment.
    Do: HTTPS_PROXY in a drop-in.
    """
    shell = [g for g in given if g.name.upper() in ("HTTPS_PROXY", "HTTP_PROXY") and g.scope in ("shell", "env")]
    config = (start.config if start else None) or {}
    has = (
        config.get("HTTPS_PROXY")
        or config.get("https_proxy")
        or any(g.name.upper() == "HTTPS_PROXY" and g.scope in ("service", "process") for g in given)
    )
    failed = [e for e in signs.of("registry_unreached") if not went_on(e, signs)]
    timed_out = [e for e in signs.of("registry_timeout") if not re.search(r"https?://[^\s\"/]*:11434\b", e.text)]
    if (timed_out or failed) and not has and not signs.has("http_plain_manifest"):
        yield Finding(
            "error",
            "a pull cannot reach the registry"
            + (": the proxy is set in a shell, not for the service" if shell else ""),
            (*signs.quotes(timed_out), *signs.quotes(failed[-2:]), *(g.place for g in shell[:1])),
            "sudo ollamactl apply --set HTTPS_PROXY=http://PROXY:3128",
        )


@check(weight=60, explains=("proxy_not_in_service", "server_not_reachable"))
def http_proxy_ignored(signs: Signs, given: tuple[Given, ...] = ()) -> Iterator[Finding]:
    """http_proxy is not used for plain-http requests.

    Why: Ollama reads HTTPS_PROXY for pulls; plain-http paths go past http_proxy.
    Seen: a connection to port 80 of the registry.
    Do: https, with HTTPS_PROXY.
    """
    if signs.has("http_plain_manifest"):
        yield Finding(
            "warning",
            "a plain-http request went past http_proxy",
            signs.lines("http_plain_manifest"),
            "sudo ollamactl apply --set HTTPS_PROXY=http://PROXY:3128",
        )


@check(weight=72, explains=("proxy_returns_html", "server_not_reachable", "port_in_use", "queue_full_503"))
def http_proxy_hijacks_local_api(
    signs: Signs = NO_SIGNS, given: tuple[Given, ...] = (), start: Start | None = None
) -> Iterator[Finding]:
    """HTTP_PROXY sends the client's own requests to the proxy.

    Why: clients honour it for http://127.0.0.1 too, unless NO_PROXY names it.
    Seen: HTTP_PROXY without a NO_PROXY for the local address, in the client's or the server's environment.
    Do: NO_PROXY=localhost,127.0.0.1,0.0.0.0; Ollama needs HTTPS_PROXY only.
    """
    values = {g.name.upper(): g for g in given}
    config = (start.config if start else None) or {}
    http = (
        values["HTTP_PROXY"].value
        if "HTTP_PROXY" in values
        else config.get("HTTP_PROXY") or config.get("http_proxy", "")
    )
    none = values["NO_PROXY"].value if "NO_PROXY" in values else config.get("NO_PROXY") or config.get("no_proxy", "")
    trouble = signs.has("client_cannot_connect", "something_wrong", "proxy_error", "bind_error")
    if signs.has("http_proxy_told"):
        said = "HTTP_PROXY sends the client's own requests to the proxy, unless NO_PROXY names the local address"
        fix = "export NO_PROXY=localhost,127.0.0.1,0.0.0.0"
        yield Finding("error" if trouble else "warning", said, signs.lines("http_proxy_told", "something_wrong"), fix)
        return
    local = re.search(r"localhost|127\.|0\.0\.0\.0|\*", none) is not None
    if http and not local:
        place = values["HTTP_PROXY"].place if "HTTP_PROXY" in values else "server config: HTTP_PROXY"
        of_service = "HTTP_PROXY" in values and values["HTTP_PROXY"].scope == "service" and "HTTPS_PROXY" not in values
        said = "HTTP_PROXY is set and NO_PROXY leaves out the local address"
        yield Finding(
            "error" if trouble else "warning" if of_service else "info",
            said + ("; pulls go by HTTPS_PROXY, which is not set" if of_service else ""),
            (place, *(signs.lines("client_cannot_connect", "something_wrong", "bind_error"))),
            "sudo ollamactl apply --unset HTTP_PROXY    # and --set HTTPS_PROXY=… where pulls need one"
            if of_service
            else "export NO_PROXY=localhost,127.0.0.1,0.0.0.0",
            weight=72 if trouble or of_service else 9,
        )


@check(weight=56)
def proxy_returns_html(signs: Signs) -> Iterator[Finding]:
    """A web page came where JSON was expected.

    Why: a proxy's block or log-in page, or a wrong address.
    Seen: "invalid character '<' looking for beginning of value".
    Do: ask the address with curl and read the page; correct the proxy.
    """
    if signs.has("html_reply"):
        yield Finding(
            "error",
            "a proxy answered with a web page in place of the registry",
            signs.lines("html_reply"),
            "curl -v https://registry.ollama.ai/v2/    # through the same proxy",
        )
