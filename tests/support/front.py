"""Stands for a process of `prefork` where somebody else starts programs: `front.py ADDRESS MODULES ARGUMENTS...` has it
forked with its own folder, environment and standard streams, passes signals on, and ends as it does. Killed, it takes
that process with it, a moment later: its pipes are closed when it is gone. It imports nothing of ours: it is there in
hundredths of a second."""

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM)

address, read, *arguments = sys.argv[1:]
signal.pthread_sigmask(
    signal.SIG_BLOCK, PASSED_ON
)  # the process may have said that it is there before we know its id
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect(f"\0{address}")
request = {
    "arguments": arguments,
    "cwd": os.getcwd(),
    "env": dict(os.environ),
    "session": False,
    "terminal": False,
    "read": read.split(),
}
socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2, theirs.fileno()])
theirs.close()
pid = int(ours.recv(64))
for number in PASSED_ON:
    signal.signal(number, lambda got, frame: os.kill(pid, got))
signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
for stream in (0, 1, 2):
    os.close(stream)
code = int(ours.recv(64) or -signal.SIGKILL)
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
