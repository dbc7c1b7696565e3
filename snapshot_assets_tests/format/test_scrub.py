import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.format.scrub import MASK, scrub, secrets_of

SECRET = "hunter2hunter2"

_URI_PASSWORDS = st.text("abcXYZ0189-._~!$&'()*+,;=%:@/?#[]", min_size=1, max_size=20).map(lambda text: f"Zq{text}qZ")
_PASSWORDS = st.text(string.printable, min_size=1, max_size=20).map(lambda text: f"Zq{text}qZ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"postgresql://reader:{SECRET}@db:5432/shop", "postgresql://***@db:5432/shop"),
        ("postgresql://reader@db/shop", "postgresql://***@db/shop"),
        (f"https://{SECRET}@example.com/x", "https://***@example.com/x"),
        (f"postgresql:///shop?user=reader&password={SECRET}&sslmode=require", None),
        (f"host=db user=reader password={SECRET} dbname=shop", "host=db user=reader password=*** dbname=shop"),
        (f"host=db password = '{SECRET} \\' {SECRET}' dbname=shop", "host=db password = *** dbname=shop"),
        (f"host=db password=a\\ {SECRET} dbname=shop", "host=db password=*** dbname=shop"),
        (f"sslpassword={SECRET}", "sslpassword=***"),
        (f'{{"password": "{SECRET}\\"{SECRET}", "port": 5432}}', '{"password": ***, "port": 5432}'),
        (f"{{'secret_access_key': '{SECRET}', 'region': 'x'}}", "{'secret_access_key': ***, 'region': 'x'}"),
        (f"AWS_SECRET_ACCESS_KEY={SECRET} AWS_REGION=x", "AWS_SECRET_ACCESS_KEY=*** AWS_REGION=x"),
        (f"fs.s3a.secret.key={SECRET} fs.s3a.path=x", "fs.s3a.secret.key=*** fs.s3a.path=x"),
        (
            f"https://a.blob.core.windows.net/c/x?sv=2020&sig={SECRET}%3D&se=1",
            "https://a.blob.core.windows.net/c/x?sv=2020&sig=***&se=1",
        ),
        (f"https://b.s3/x?X-Amz-Signature={SECRET}&y=1", "https://b.s3/x?X-Amz-Signature=***&y=1"),
        (f"https://b.s3/x?X-Amz-Security-Token={SECRET}", "https://b.s3/x?X-Amz-Security-Token=***"),
        (f"https://h/x?access_token={SECRET}#f", "https://h/x?access_token=***#f"),
        (f"AccountName=a;AccountKey={SECRET}==", "AccountName=a;AccountKey=***"),
        (f"Authorization: Bearer {SECRET}", "Authorization: ***"),
        (f"sent Bearer {SECRET} and failed", "sent Bearer *** and failed"),
        ("key AKIAIOSFODNN7EXAMPLE was refused", "key *** was refused"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln was refused", "*** was refused"),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----\nend", "***\nend"),
        (f"-----BEGIN PRIVATE KEY-----\n{SECRET}", "***"),
    ],
)
def test_credentials_are_removed_and_the_rest_stays(text, expected):
    scrubbed = scrub(text)
    assert SECRET not in scrubbed
    if expected is not None:
        assert scrubbed == expected


@pytest.mark.parametrize(
    "text",
    [
        'FATAL: password authentication failed for user "reader"',
        "Write `carriers: {public.users.password: text}` in the plan, or give --carrier public.password=text, and",
        "Write `time_columns: {public.tokens: <column>}` in the plan, or `public.tokens: null` to export it untimed.",
        "or give --time-column public.tokens=<column>, or public.tokens=null.",
        "mask it (`mask: {public.users.password: ...}`).",
        "Give --map-table public.tokens=<schema>.<other name>, or leave one out with --tables.",
        "s3://bucket/prefix/data/7/public.flights-0a1b2c3d-0000.parquet",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  data/1/a.b-00000000-0000.parquet",
        "file:///srv/snapshots/demo: No space left on device",
        'relation "public.passengers" does not exist',
        "duckdb:///data/flights.duckdb is locked by process 17",
        "storage.s3.secret_access_key: refers to the environment variable BACKUP_KEY, which is not set",
        "2013-01-01T00:00:00Z",
        "",
    ],
)
def test_texts_without_credentials_do_not_change(text):
    assert scrub(text) == text


@given(_URI_PASSWORDS)
def test_no_password_of_a_uri_survives(password):
    assert password not in scrub(f"cannot reach postgresql://reader:{password}@db.example.com:5432/shop: refused")
    assert scrub(f"see postgresql://u:{password}@db/shop now") == "see postgresql://***@db/shop now"


@given(_PASSWORDS)
def test_no_quoted_password_survives(password):
    quoted = password.replace("\\", "\\\\").replace("'", "\\'")
    assert scrub(f"host=db password='{quoted}' dbname=shop") == "host=db password=*** dbname=shop"


@given(_PASSWORDS, st.text(string.printable, max_size=40), st.text(string.printable, max_size=40))
def test_a_known_secret_survives_nowhere(password, before, after):
    scrubbed = scrub(f"{before}{password}{after}{quote(password, safe='')}{after}", [password])
    assert password not in scrubbed
    assert quote(password, safe="") not in scrubbed


def test_of_two_known_secrets_the_longer_is_removed_first():
    assert scrub("abcdef", ["abcd", "abcdef"]) == MASK


def test_a_secret_too_short_to_stand_out_masks_no_words_but_stays_hidden_in_a_uri():
    assert scrub("abc of a at a://a:abc@host", ["", "a", "abc"]) == "abc of a at a://***@host"
    assert scrub("abcd of a", ["abcd"]) == "*** of a"


@given(
    st.lists(
        st.sampled_from([*string.printable, "password=", "a://", "?sig=", "token: ", "Bearer ", "'x y'", "abcdefgh"]),
        max_size=30,
    ).map("".join)
)
def test_scrubbing_twice_changes_nothing_more(text):
    assert scrub(scrub(text)) == scrub(text)


@pytest.mark.slow
@pytest.mark.timeout(60)  # quadratic time needs minutes
@pytest.mark.parametrize(
    "hostile",
    ["passwd" * 60_000, "a://" * 90_000, "a://b:" * 60_000, "?token" * 60_000, "-----BEGIN PRIVATE KEY " * 20_000],
)
def test_long_texts_are_scrubbed_in_linear_time(hostile):
    assert scrub(hostile) == hostile


def test_all_forms_of_a_password_are_secret() -> None:
    assert set(secrets_of("postgresql://me:a%20b@h/d?password=c%26d&sslpassword=e")) == {"a%20b", "a b", "c&d", "e"}
    assert secrets_of("postgresql://me@h/d") == ()
