"""The chat page as it is sent: whole, small, under a policy that lets its own script run and nothing else, with no address in it."""
import base64
import hashlib
import re
import shutil
import subprocess
import urllib.request

import serving
from serving import fake_server


def get(server):
    with urllib.request.urlopen(server.url + "/", timeout=10) as reply:
        return reply.headers, reply.read().decode()


def policy_of(headers):
    parts = (part.split() for part in headers["Content-Security-Policy"].split(";"))
    return {part[0]: part[1:] for part in parts}


def the_page_is_one_file():
    with fake_server() as server:
        headers, page = get(server)
        assert headers["Content-Type"] == "text/html; charset=utf-8" and page.startswith("<!doctype html>")
        assert len(page.encode()) < 120_000
        assert "@script@" not in page and "@style@" not in page
        markup = re.sub(r"<script>.*</script>|<style>.*</style>", "", page, flags=re.S)
        assert not re.search(r"""\b(src|srcset|action|poster)\s*=""", markup)
        for address in re.findall(r"""href\s*=\s*["']([^"']*)""", markup):
            assert address.startswith(("#", "data:image/svg+xml")), address
        style = re.search(r"<style>(.*)</style>", page, re.S)[1]
        assert "url(" not in style and "@import" not in style
        # XML namespaces are names that nobody fetches
        assert set(re.findall(r"https?://[\w.]+", page)) == {"http://www.w3.org"}
        assert not re.search(r"\son\w+=", markup) and " style=" not in markup


def the_policy_lets_only_its_own_script_run():
    with fake_server() as server:
        headers, page = get(server)
        policy = policy_of(headers)
        assert policy["default-src"] == ["'none'"] and policy["frame-ancestors"] == ["'none'"]
        assert policy["base-uri"] == ["'none'"] and policy["form-action"] == ["'none'"] and policy["connect-src"] == ["'self'"]
        assert policy["require-trusted-types-for"] == ["'script'"] and policy["trusted-types"] == ["'none'"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        for tag, directive in (("script", "script-src"), ("style", "style-src")):
            found = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
            digests = ["'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'" for text in found]
            assert len(found) == 1 and policy[directive] == digests
        assert headers["X-Frame-Options"] == "DENY" and headers["X-Content-Type-Options"] == "nosniff"


def the_script_parses_no_html_and_is_valid():
    with fake_server() as server:
        _, page = get(server)
        script = re.search(r"<script>(.*)</script>", page, re.S)[1]
        code = re.sub(r"/\*.*?\*/", "", script, flags=re.S)
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser",
                     "createContextualFragment", "srcdoc", "setHTML"):
            assert word not in code, word
        node = shutil.which("node")
        if node:
            subprocess.run([node, "--check", "-"], input=script, text=True, check=True, timeout=60)
        else:
            print("node is not there: the script's syntax was not checked")


if __name__ == "__main__":
    serving.run([the_page_is_one_file, the_policy_lets_only_its_own_script_run, the_script_parses_no_html_and_is_valid])
