"""A bucket for tests: moto's S3 behind a real socket, one server a process, one bucket a test."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.request import Request, urlopen

from engine.storage.blobs import Blobs


@cache
def _server() -> str:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    return f"http://127.0.0.1:{server.get_host_and_port()[1]}"


def environment() -> dict[str, str]:
    """The variables with which the bucket is reached."""
    return {
        "AWS_ENDPOINT_URL": _server(),
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }


def new_bucket() -> str:
    """The URL of a place in a new bucket."""
    import boto3

    env = environment()
    client: Any = boto3.client(
        "s3",
        endpoint_url=env["AWS_ENDPOINT_URL"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )
    name = f"files-{os.urandom(6).hex()}"
    client.create_bucket(Bucket=name)
    return f"s3://{name}/team"


@contextmanager
def refusing_everybody() -> Iterator[None]:
    """Meanwhile the server looks at who asks, and knows nobody."""
    _check_from("0")
    try:
        yield
    finally:
        _check_from("inf")


def _check_from(calls: str) -> None:
    """From so many calls on the server looks at who asks."""
    plain = {"Content-Type": "text/plain"}
    with urlopen(Request(f"{_server()}/moto-api/reset-auth", calls.encode(), plain)) as answer:
        answer.read()


def in_bucket() -> Blobs:
    """Blobs in a new bucket."""
    return Blobs(new_bucket(), environment())
