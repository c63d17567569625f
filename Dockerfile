# docker build -t sayso . ; docs/production.md has how to run it. What flows call (git, kubectl, …) belongs into an image
# of your own: FROM sayso, USER root, install, USER 10001:10001.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim AS build
WORKDIR /src
RUN python -m venv /opt/sayso
ENV PATH=/opt/sayso/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# With tools of MCP servers: docker build --build-arg LOCKED=requirements-mcp.txt
ARG LOCKED=requirements.txt
COPY deploy/requirements.txt deploy/requirements-mcp.txt deploy/
RUN pip install --require-hashes --only-binary :all: -r deploy/${LOCKED}
COPY pyproject.toml README.md LICENSE .env.example ./
COPY deploy/verify_audit.py deploy/
COPY examples examples
COPY prompt_state prompt_state
COPY engine engine
COPY bot bot
RUN pip install --no-deps .

FROM python:${PYTHON}-slim
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data sayso \
 && install -d -o 10001 -g 10001 -m 700 /data /flows
COPY --from=build /opt/sayso /opt/sayso
ENV PATH=/opt/sayso/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    SAYSO_HOME=/data SAYSO_FLOWS=/flows
WORKDIR /data
VOLUME /data
USER 10001:10001
# Asks a file of the home, not Slack.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 CMD ["sayso", "doctor", "--live"]
ENTRYPOINT ["sayso"]
CMD ["start"]
