"""Starts servers for tests: the real one with a real model, or the same HTTP front over an engine that is only arithmetic."""
import glob
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request

BUILD = os.environ["ES_BUILD"]
SOURCE = os.environ["ES_SOURCE"]

# A thousand connections take a thousand descriptors on both sides; children inherit the limit.
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


class Server:
    """A server in a process of its own; `with Server([...]) as server:` ends it, and insists on exit code 0."""

    def __init__(self, command):
        self.command = command

    def start(self):
        return subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        self.process = self.start()
        line = self.process.stdout.readline()
        assert line, f"{self.command[0]} did not start"
        self.url = json.loads(line)["url"] if line.startswith("{") else line.strip()
        self.port = int(self.url.rsplit(":", 1)[1])
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if kind is None:
            assert self.process.returncode == 0, f"the server ended with {self.process.returncode}"

    def health(self):
        with urllib.request.urlopen(self.url + "/health", timeout=10) as reply:
            return json.load(reply)

    def wait_until(self, condition, seconds=10.0):
        """True once condition(health) holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition(self.health()):
                return True
            time.sleep(0.02)
        return False

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def post(self, path, body, seconds=30.0, headers=()):
        """A request as raw bytes: (status, headers, body)."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        with self.connect() as s:
            s.settimeout(seconds)
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(data)}\r\n"
            try:
                s.sendall(head.encode() + "".join(h + "\r\n" for h in headers).encode() + b"\r\n" + data)
            except (BrokenPipeError, ConnectionResetError):
                pass
            return read_reply(s)


def read_reply(s):
    data = b""
    while block := s.recv(65536):
        data += block
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin1").split("\r\n")
    headers = dict((k.lower(), v.strip()) for k, _, v in (line.partition(":") for line in lines[1:]))
    return int(lines[0].split()[1]), headers, body


def fake_server(*options):
    return Server([os.path.join(BUILD, "tests", "fake_server"), *options])


def find_model():
    """A model that can chat: $ES_MODEL, or what ./dev keeps in models/. None when there is none."""
    if os.environ.get("ES_MODEL"):
        return os.environ["ES_MODEL"]
    found = sorted(glob.glob(os.path.join(SOURCE, "models", "*.gguf")))
    return found[0] if found else None


def oracle_model(family="qwen3_5"):
    return os.path.join(SOURCE, "tests", "data", "oracle", family)


def real_server(model, *options):
    return Server([os.path.join(BUILD, "evenshare"), "serve", "-m", model, "--port", "0", "--json", *options])


def skip(reason):
    print("skipped:", reason)
    sys.exit(77)


def run(tests):
    """Run test functions in order; says which promise broke."""
    failed = 0
    for test in tests:
        begin = time.monotonic()
        try:
            test()
            print(f"ok   {test.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Exception as error:  # pylint: disable=broad-except
            import traceback
            traceback.print_exc()
            print(f"FAIL {test.__name__}: {error!r}", flush=True)
            failed += 1
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
