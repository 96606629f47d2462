"""`evenshare pull`, `list` and `rm` against a hub that breaks off, lies, redirects and names files as no file should be named."""
import hashlib
import http.server
import json
import os
import subprocess
import tempfile
import threading
import urllib.parse

import serving

EVENSHARE = os.path.join(serving.BUILD, "evenshare")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = os.path.join(serving.SOURCE, "models", "evenshare-default.gguf")


class Hub:
    """Serves `files` of one model, org/name. What it does wrong is in its fields."""

    def __init__(self, files, licence="apache-2.0"):
        self.files, self.licence = files, licence
        self.cut = {}           # file → bytes after which the connection breaks, each once
        self.wrong = set()      # files whose bytes are not what the list says
        self.ranges = True      # honours Range
        self.token = None       # what it asks for
        self.away = None        # another hub that files are redirected to
        self.failures = 0       # 503 so many times
        self.asked = []         # (path, headers)
        self.extra = []         # more rows of the list

    def listing(self):
        rows = []
        for name, data in self.files.items():
            row = {"rfilename": name, "size": len(data)}
            if name.endswith((".gguf", ".safetensors")):
                row["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
            else:
                row["blobId"] = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            rows.append(row)
        return {"sha": COMMIT, "gated": False, "cardData": {"license": self.licence}, "siblings": rows + self.extra}

    def __enter__(self):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def plain(self, code, data=b"", **headers):
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                hub.asked.append((self.path, dict(self.headers)))
                path = urllib.parse.urlparse(self.path).path
                if hub.failures:
                    hub.failures -= 1
                    return self.plain(503)
                if hub.token and self.headers["Authorization"] != "Bearer " + hub.token:
                    return self.plain(401)
                if path == "/api/models/org/name/revision/main":
                    return self.plain(200, json.dumps(hub.listing()).encode())
                prefix = f"/org/name/resolve/{COMMIT}/"
                name = path[len(prefix):] if path.startswith(prefix) else path[1:]
                if name not in hub.files:
                    return self.plain(404)
                if hub.away:
                    return self.plain(302, Location=f"{hub.away.url}/{name}")
                return self.file(name)

            def file(self, name):
                data = hub.files[name]
                if name in hub.wrong:
                    data = bytes(len(data) - 1) + b"x"
                start = 0
                if hub.ranges and self.headers["Range"]:
                    start = int(self.headers["Range"].split("=")[1].split("-")[0])
                    if start >= len(data):
                        return self.plain(416)
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
                self.send_header("Content-Length", str(len(data) - start))
                self.end_headers()
                end = start + hub.cut.pop(name) if name in hub.cut else len(data)
                self.wfile.write(data[start:end])
                self.wfile.flush()
                if end < len(data):
                    self.connection.close()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.folder = tempfile.TemporaryDirectory()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()

    def run(self, *arguments, **environment):
        settings = {"HF_ENDPOINT": self.url, "ES_MODELS": self.folder.name, "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
        return subprocess.run([EVENSHARE, *arguments], env={**settings, **environment}, capture_output=True, text=True, timeout=120)

    def here(self):
        """What lies in the model's folder."""
        path = os.path.join(self.folder.name, "org", "name")
        return sorted(os.listdir(path)) if os.path.isdir(path) else None

    def fetched(self, name):
        return [headers for path, headers in self.asked if urllib.parse.urlparse(path).path.endswith("/" + name)]


def model_bytes():
    with open(MODEL, "rb") as file:
        return file.read()


def a_model_is_pulled_by_quantisation_and_used_by_name():
    data = model_bytes()
    files = {"M-Q8_0.gguf": data, "M-Q4_K_M.gguf": data + b" ", "mmproj-Q4_K_M.gguf": b"no", "LICENSE": b"do as you like", "README.md": b"#",
             "config.json": b"{}"}
    with Hub(files) as hub:
        done = hub.run("pull", "hf:org/name:q8_0")
        assert done.returncode == 0, done.stderr
        assert "licence: apache-2.0" in done.stderr and done.stdout.strip().endswith("/org/name/M-Q8_0.gguf")
        assert hub.here() == [".lock", "LICENSE", "M-Q8_0.gguf", "evenshare.json"]
        used = hub.run("inspect", "hf:org/name", "--json")
        assert used.returncode == 0 and json.loads(used.stdout)["path"].endswith("/M-Q8_0.gguf"), used.stderr
        used = hub.run("run", "-p", "What is 2 + 3?", "--temp", "0", ES_MODEL="hf:org/name:Q8_0")
        assert used.returncode == 0 and "5" in used.stdout, used.stderr
        assert hub.run("pull", "hf:org/name").stdout.strip().endswith("/M-Q4_K_M.gguf")
        assert len(hub.fetched("M-Q8_0.gguf")) == 1
        assert hub.run("inspect", "hf:org/name:M-Q8_0.gguf").returncode == 0
        lines = hub.run("list").stdout.splitlines()
        assert [line.split()[0] for line in lines] == ["hf:org/name:M-Q4_K_M.gguf", "hf:org/name:M-Q8_0.gguf"]
        assert all(line.endswith("apache-2.0") for line in lines)
        assert json.loads(hub.run("list", "--json").stdout)[0]["licence"] == "apache-2.0"
        again = hub.run("pull", "hf:org/name:Q8_0")
        assert again.returncode == 0 and len(hub.fetched("M-Q8_0.gguf")) == 1, "what is there is not fetched again"
        assert hub.run("rm", EVENSHARE_MODEL="hf:org/name").returncode == 2, "what is removed is typed"
        assert hub.run("rm", "hf:org/name:Q4_K_M").returncode == 0
        assert hub.here() == [".lock", "LICENSE", "M-Q8_0.gguf", "evenshare.json"]
        assert hub.run("rm", "hf:org/name").returncode == 0 and hub.here() is None
        missing = hub.run("inspect", "hf:org/name:Q8_0")
        assert missing.returncode == 2 and "evenshare pull hf:org/name:Q8_0" in missing.stderr
        assert hub.run("rm", "hf:org/name").returncode == 2


def folders_and_split_files_come_whole():
    files = {"model-00001-of-00002.safetensors": b"1" * 50, "model-00002-of-00002.safetensors": b"2" * 50, "consolidated.safetensors": b"no",
             "config.json": b"{}", "tokenizer.json": b"{}", "train.py": b"no", "model.safetensors.index.json": b"{}", "pytorch_model.bin": b"no"}
    with Hub(files) as hub:
        done = hub.run("pull", "hf:org/name")
        assert done.returncode == 0 and done.stdout.strip().endswith("/org/name"), done.stderr
        assert hub.here() == [".lock", "config.json", "evenshare.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                              "model.safetensors.index.json", "tokenizer.json"]
    files = {f"M-Q4_0-0000{i}-of-00003.gguf": b"GGUF%d" % i for i in (1, 2, 3)}
    with Hub({**files, "M-Q8_0.gguf": b"GGUF"}) as hub:
        assert hub.run("pull", "hf:org/name:Q4_0").stdout.strip().endswith("/M-Q4_0-00001-of-00003.gguf")
        assert len([name for name in hub.here() if name.endswith(".gguf")]) == 3
        assert len(hub.run("list").stdout.splitlines()) == 1
        del hub.files["M-Q4_0-00002-of-00003.gguf"]
        done = hub.run("pull", "hf:org/name:Q4_0")
        assert done.returncode == 2 and "only 2 of them" in done.stderr
        done = hub.run("pull", "hf:org/name:Q2_K")
        assert done.returncode == 2 and "M-Q8_0.gguf" in done.stderr


def what_breaks_off_goes_on_where_it_was():
    data = bytes(range(256)) * 400
    with Hub({"M-Q8_0.gguf": data}) as hub:
        hub.cut = {"M-Q8_0.gguf": 70000}
        done = hub.run("pull", "hf:org/name")
        assert done.returncode == 0, done.stderr
        assert [h.get("Range") for h in hub.fetched("M-Q8_0.gguf")] == [None, "bytes=70000-"]
        assert hub.run("rm", "hf:org/name").returncode == 0
        # a pull that was killed
        os.makedirs(os.path.join(hub.folder.name, "org", "name"))
        part = os.path.join(hub.folder.name, "org", "name", "M-Q8_0.gguf.part")
        with open(part, "wb") as file:
            file.write(data[:5000])
        hub.asked.clear()
        assert hub.run("pull", "hf:org/name").returncode == 0
        assert [h.get("Range") for h in hub.fetched("M-Q8_0.gguf")] == ["bytes=5000-"]
        # the beginning of something else, and a server without ranges
        hub.run("rm", "hf:org/name")
        os.makedirs(os.path.dirname(part))
        with open(part, "wb") as file:
            file.write(b"?" * 5000)
        assert hub.run("pull", "hf:org/name").returncode == 0
        hub.run("rm", "hf:org/name")
        hub.ranges, hub.cut, hub.failures = False, {"M-Q8_0.gguf": 30000}, 2
        assert hub.run("pull", "hf:org/name").returncode == 0
        with open(os.path.join(os.path.dirname(part), "M-Q8_0.gguf"), "rb") as file:
            assert file.read() == data
        assert hub.run("rm", "hf:org/name").returncode == 0 and hub.here() is None


def wrong_bytes_are_thrown_away():
    with Hub({"M-Q8_0.gguf": b"GGUF" * 1000, "config.json": b"{}"}) as hub:
        hub.wrong = {"M-Q8_0.gguf"}
        done = hub.run("pull", "hf:org/name")
        assert done.returncode == 2 and "digest" in done.stderr, done.stderr
        assert hub.here() == [".lock"] and hub.run("list").stdout == ""
    with Hub({"M.safetensors": b"1", "config.json": b"{}"}) as hub:
        hub.wrong = {"config.json"}
        assert hub.run("pull", "hf:org/name").returncode == 2
        assert "config.json" not in hub.here()
    with Hub({"M-Q8_0.gguf": b"GGUF" * 1000}) as hub:
        listing = hub.listing
        hub.listing = lambda: json.loads(json.dumps(listing()).replace('"size": 4000', '"size": 3000'))
        done = hub.run("pull", "hf:org/name")
        assert done.returncode == 2 and "more bytes" in done.stderr, done.stderr
        hub.listing = lambda: json.loads(json.dumps(listing()).replace("sha256", "sha999"))
        done = hub.run("pull", "hf:org/name")
        assert done.returncode == 2 and "unchecked" in done.stderr, done.stderr


def hostile_names_never_reach_the_disk():
    names = ["../evil.safetensors", "/etc/evil.safetensors", "a/../../evil.safetensors", "..safetensors", "...safetensors", ".hidden.safetensors", "-rf.safetensors", "evil.safetensors\n", "ev il.safetensors", "evil\u202e.safetensors",
             "evil.safetensors.sh", "evil", "CON/evil.safetensors", "a\\b.safetensors", "x" * 300 + ".safetensors", "$(evil).safetensors", "evil.safetensors\u0000.txt", "evenshare.json/x.safetensors"]
    with Hub({"good.safetensors": b"GGUF"}) as hub:
        hub.extra = [{"rfilename": name, "size": 4, "lfs": {"sha256": hashlib.sha256(b"GGUF").hexdigest(), "size": 4}}
                     for name in names if "\0" not in name] + [None, 3, {}, {"rfilename": 7}]
        done = hub.run("pull", "hf:org/name")
        assert done.returncode == 0, done.stderr
        assert hub.here() == [".lock", "evenshare.json", "good.safetensors"] and os.listdir(hub.folder.name) == ["org"]
        assert not any("evil" in path for path, _ in hub.asked)
        for name in ("hf:../x", "hf:org/..", "hf:org/name/x", "hf:org", "hf:/name", "hf:org/name:../x", "hf:org/name:", "hf:-o/name", "hf:a b/c"):
            done = hub.run("pull", name)
            assert done.returncode == 2 and "hf:" in done.stderr, name
        hub.listing = lambda: {"sha": "../../x", "siblings": []}
        assert hub.run("pull", "hf:org/name").returncode == 2
        hub.listing = lambda: ["\x1b[31m"]
        assert hub.run("pull", "hf:org/name").returncode == 2


def the_token_goes_to_its_hub_alone():
    with Hub({"M-Q8_0.gguf": b"GGUF" * 10}) as hub, Hub({"M-Q8_0.gguf": b"GGUF" * 10}) as away:
        hub.token, hub.away = "hf_secret", away
        done = hub.run("pull", "hf:org/name")
        assert done.returncode == 2 and "HF_TOKEN" in done.stderr
        done = hub.run("pull", "hf:org/name", HF_TOKEN="hf_secret")
        assert done.returncode == 0, done.stderr
        assert len(away.asked) == 1 and "Authorization" not in away.asked[0][1]
        assert "hf_secret" not in done.stderr + done.stdout
        done = hub.run("pull", "hf:org/name", HF_TOKEN="hf_secret", HF_ENDPOINT="http://192.0.2.1")
        assert done.returncode == 2 and "in the open" in done.stderr
        assert hub.run("pull", "hf:org/name", HF_ENDPOINT="file:///etc").returncode == 2


if __name__ == "__main__":
    serving.run([a_model_is_pulled_by_quantisation_and_used_by_name, folders_and_split_files_come_whole, what_breaks_off_goes_on_where_it_was,
                 wrong_bytes_are_thrown_away, hostile_names_never_reach_the_disk, the_token_goes_to_its_hub_alone])
