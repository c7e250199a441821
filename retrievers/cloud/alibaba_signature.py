"""Alibaba Cloud's request signature, version 3 (ACS3-HMAC-SHA256), for requests without a body.

Source:
    https://www.alibabacloud.com/help/en/sdk/product-overview/v3-request-structure-and-signature
"""

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import quote

ALGORITHM = "ACS3-HMAC-SHA256"
_NO_BODY = hashlib.sha256(b"").hexdigest()


def signed_query_string(params: Mapping[str, str]) -> str:
    """Encode query parameters in the order and spelling that are signed. Send exactly the returned string."""
    return "&".join(f"{_quoted(key)}={_quoted(value)}" for key, value in sorted(params.items()))


def signed_headers(
    method: str,
    host: str,
    path: str,
    query: str,
    *,
    action: str,
    version: str,
    key_id: str,
    secret: str,
    date: str,
    nonce: str,
) -> dict[str, str]:
    """Return the headers of a signed request.

    Args:
        host: as in the `Host` header, with a non-default port.
        path: path of the URL, quoted as it is sent.
        query: result of `signed_query_string`.
        date: time of the request in UTC, "2023-10-26T10:22:32Z"; the signature is valid for 15 minutes.
        nonce: a unique text; a retried request needs a new one.
    """
    headers = {
        "host": host,
        "x-acs-action": action,
        "x-acs-content-sha256": _NO_BODY,
        "x-acs-date": date,
        "x-acs-signature-nonce": nonce,
        "x-acs-version": version,
    }
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join((method, path, query, lines, names, _NO_BODY))
    text = f"{ALGORITHM}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signature = hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
    headers["Authorization"] = f"{ALGORITHM} Credential={key_id},SignedHeaders={names},Signature={signature}"
    return headers


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
