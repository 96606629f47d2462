"""A server that serves evenshare's chat page and answers it from a script, so that a browser meets what a model seldom does."""
import http.server
import json
import threading
import time
import urllib.request

from serving import fake_server


def chunk(delta, finish=None, **more):
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def usage(prompt, made, cached):
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made,
                                     "prompt_tokens_details": {"cached_tokens": cached}}}


class Scripted:
    """`answers[text of the last message]` is a list of chunks (dicts), seconds to wait (floats), or "cut" to break off.
    `requests` are the bodies that came; `key` is asked for when it is set."""

    def __init__(self, answers):
        self.answers, self.requests, self.key = answers, [], None
        with fake_server() as server, urllib.request.urlopen(server.url, timeout=10) as reply:
            self.page, self.policy = reply.read(), reply.headers["Content-Security-Policy"]

    def __enter__(self):
        scripted = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def send(self, status, kind, data, **headers):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(data if isinstance(data, bytes) else json.dumps(data).encode())

            def refused(self):
                if scripted.key is None or self.headers["Authorization"] == f"Bearer {scripted.key}":
                    return False
                self.send(401, "application/json", {"error": {"message": "a valid API key is needed"}})
                return True

            def do_GET(self):
                if self.path == "/":
                    self.send(200, "text/html; charset=utf-8", scripted.page, Content_Security_Policy=scripted.policy)
                elif self.refused():
                    pass
                elif self.path == "/v1/models":
                    self.send(200, "application/json", {"data": [{"id": "scripted", "max_model_len": 4096}]})
                elif self.path == "/slots":
                    self.send(200, "application/json", [{"state": "prompt", "prompt_tokens": 1000, "prompt_tokens_done": 340}])
                elif self.path == "/metrics":
                    self.send(200, "text/plain", b"evenshare_requests_running 3\nnonsense\n")
                else:
                    self.send(404, "application/json", {})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.refused():
                    return
                scripted.requests.append(body)
                self.send(200, "text/event-stream", b": waiting\n\n")
                try:
                    for part in scripted.answers[body["messages"][-1]["content"]]:
                        if part == "cut":
                            return
                        if isinstance(part, float):
                            time.sleep(part)
                        else:
                            self.wfile.write(f"data: {json.dumps(part)}\n\n".encode())
                    self.wfile.write(b"data: [DONE]\n\n")
                except OSError:
                    pass  # the page has stopped it

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
