"""The Slack app: inbound and outbound edges, rendering, the command line, and a local workspace to try it in."""
