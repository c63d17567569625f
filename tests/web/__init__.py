"""The control room: what it tells over HTTP, whom it refuses, and the page in a browser."""
