"""Credentials in texts: none is left in an error, and what is none stays."""

import pytest

from retrievers.core.credentials import find_credentials, mask_credentials
from retrievers.core.errors import BadRequest, RetrievalError, Unavailable
from retrievers.sync.source_factory import open_source


@pytest.mark.parametrize(
    ("text", "shown", "secrets"),
    [
        ("see postgresql://app:hunter22@db/x now", "see postgresql://***@db/x now", {"hunter22"}),
        ("postgresql://app:a%40b@c@db/x", "postgresql://***@db/x", {"a%40b@c", "a@b@c"}),
        ("postgresql:///x?user=app&password=hunter22", "postgresql:///x?user=app&password=***", {"hunter22"}),
        ("host=db password=hunter22 dbname=x", "host=db password=*** dbname=x", {"hunter22"}),
        ("https://k3y@h/v1", "https://***@h/v1", {"k3y"}),
        ("postgresql://app@h/v1", "postgresql://***@h/v1", set()),
        ("https://h/v1?api-version=2&api_key=k3y&x=1", "https://h/v1?api-version=2&api_key=***&x=1", {"k3y"}),
        ("https://h?X-Amz-Signature=a7&apiToken=t0", "https://h?X-Amz-Signature=***&apiToken=***", {"a7", "t0"}),
        ("https://h/f?code=c0de==&sig=s%2B1", "https://h/f?code=***&sig=***", {"c0de==", "s%2B1", "s+1"}),
    ],
)  # fmt: skip
def test_credentials_are_found_and_hidden(text: str, shown: str, secrets: set[str]):
    assert mask_credentials(text) == shown
    assert set(find_credentials(text)) == secrets
    for error in (RetrievalError(text), BadRequest(text), Unavailable("it", text)):
        assert not any(one in str(error) for one in secrets)
    assert Unavailable("it", text).reason == shown


@pytest.mark.parametrize(
    "text",
    [
        "https://h/a?keyword=rotor&author=Ada&tokens=3",
        "write to ada@h.example",
        "https://h/@ada/post",
        "git:/repo@main",
    ],
)
def test_what_is_no_credential_stays(text: str):
    assert mask_credentials(text) == text
    assert not list(find_credentials(text))


@pytest.mark.parametrize(
    "text",
    [
        "s3://key:hunter22@bucket/x", "https://me:hunter22@h/list", "https:/me:hunter22@h/list",
        "git:https://me:hunter22@h/repo", "git:ssh:/me:hunter22@h/repo", "ftp://me:hunter22@h:x/y",
    ],
)  # fmt: skip
def test_a_source_that_is_refused_is_not_quoted_with_its_password(text: str):
    with pytest.raises(BadRequest) as refused:
        open_source(text)
    assert "hunter22" not in str(refused.value)
