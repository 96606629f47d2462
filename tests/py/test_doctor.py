"""`evenshare doctor` finds a kernel that is wrong, one that crashes and one that never returns, and the server serves without
them: the same answer as with kernels that are right. The program under test is evenshare_faulty, whose kernels can be
spoiled."""
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
from urllib.parse import urlparse

BUILD, SOURCE = os.environ["ES_BUILD"], os.environ["ES_SOURCE"]
FAULTY = os.path.join(BUILD, "tests", "evenshare_faulty")
MODEL = os.path.join(SOURCE, "tests", "data", "oracle", "llama")
if not os.path.exists(FAULTY):
    print("skipped: evenshare_faulty was not built")
    sys.exit(77)


class Home:
    """A cache folder of its own, and the faults of the kernels."""

    def __init__(self, folder, faults=""):
        self.folder, self.faults = folder, faults

    def environment(self):
        own = {k: v for k, v in os.environ.items() if k not in ("ES_INSTRUCTION_SET", "ES_TRUST")}
        return dict(own, XDG_CACHE_HOME=self.folder, ES_FAULT=self.faults)

    def run(self, *arguments, code=0):
        done = subprocess.run([FAULTY, *map(str, arguments)], capture_output=True, text=True, env=self.environment())
        assert done.returncode == code, (arguments, done.returncode, done.stdout[-2000:], done.stderr)
        return done

    def doctor(self, deadline=30, code=0):
        return json.loads(self.run("doctor", "--quick", "--json", "--deadline", deadline, code=code).stdout)

    def serve(self, *arguments):
        """Starts a server, asks for one completion, stops it: the answer's tokens and what was said at the start."""
        with tempfile.TemporaryFile("w+") as errors:
            command = [FAULTY, "serve", "-m", MODEL, "--port", "0", "--json", "--ctx", "256", "--numeric", "f32", *arguments]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=self.environment())
            try:
                line = server.stdout.readline()
                answer = None
                if line:
                    url = urlparse(json.loads(line)["url"])
                    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
                    body = {"model": "x", "prompt": list(range(3, 40)), "max_tokens": 12, "temperature": 0, "logprobs": 0,
                            "ignore_eos": True}
                    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
                    reply = connection.getresponse()
                    answer = json.loads(reply.read())
                    assert reply.status == 200, answer
                    answer = answer["choices"][0]["logprobs"]
            finally:
                server.send_signal(signal.SIGTERM)
                server.wait(60)
            errors.seek(0)
            return answer, errors.read()


def verdicts(report):
    return {row["kernel"]: row for row in report["kernels"]}


def fresh(faults=""):
    return Home(tempfile.mkdtemp(dir=where), faults)


with tempfile.TemporaryDirectory() as where:
    home = fresh()
    healthy = home.doctor()
    sets = sorted({k.split("/")[0] for k, row in verdicts(healthy).items() if row["verdict"] == "trusted"})
    assert {row["verdict"] for row in healthy["kernels"]} <= {"trusted", "absent"} and not healthy["device_hung"]
    assert healthy["machine"]["cpus"] >= 1 and healthy["machine"]["memory"] > 0
    assert healthy["machine"]["transparent_huge_pages_given"] in (True, False)
    assert healthy["machine"]["transparent_huge_pages"] != "never" or not healthy["machine"]["transparent_huge_pages_given"]
    assert home.run("doctor", "--kept", "--json").stdout.count('"trusted"') >= len(sets)
    right, said = home.serve()
    assert right and "not trusted" not in said and "trying" not in said, said # verdicts were kept
    print("ok healthy", sets)
    if not sets:
        print("skipped the rest: this processor has the reference kernels only")
        sys.exit(0)
    best = "avx512" if "avx512" in sets else sets[0]
    lower = "avx2" if "avx512" in sets else "reference"

    # All three at once: each is caught, named, and falls back.
    home = fresh(f"{best}/rmsnorm=wrong,{best}/swiglu=crash,{best}/axpy=hang")
    report = home.doctor(deadline=4, code=1)
    got = verdicts(report)
    for name, verdict, word in [("rmsnorm", "wrong", "reference says"), ("swiglu", "crashed", "fault"),
                                ("axpy", "hung", "4 s")]:
        row = got[f"{best}/{name}"]
        assert row["verdict"] == verdict and word in row["detail"], row
    others = [row for kernel, row in got.items() if kernel.split("/")[1] not in ("rmsnorm", "swiglu", "axpy")]
    assert {row["verdict"] for row in others} <= {"trusted", "absent"}
    assert {f["operation"]: f["to"] for f in report["fallbacks"]} == {k: lower for k in ("rmsnorm", "swiglu", "axpy")}
    text = home.run("doctor", "--kept", code=1).stdout
    assert "3 kernels cannot be used" in text and f"{best}/swiglu: crashed" in text

    # The server says in a line what it fell back from, and gives the answer of the right kernels.
    slow = ["--allow-slow"] if lower == "reference" else []
    answer, said = home.serve(*slow)
    assert answer == right
    for name in "rmsnorm", "swiglu", "axpy":
        assert f"{name} of {best} is not trusted" in said and f"that of {lower} serves instead" in said, said
    print("ok wrong, crashed, hung")

    # Nobody ran doctor: the first start probes, and serves all the same.
    home = fresh(f"{best}/swiglu=crash")
    answer, said = home.serve(*slow)
    assert answer == right and "trying this build's kernels" in said and "swiglu" in said, said
    answer, said = home.serve(*slow)
    assert answer == right and "trying" not in said, said
    # A step that does not fit the budget that was asked for: one that does, or nobody missing, starts. Where only the reference
    # is left, it is refused as too slow before anybody asks how long a step takes.
    answer, said = home.serve("--step-budget", "0.001")
    refusal = f"swiglu of {best} is not trusted, longer than --step-budget 0.001" if lower != "reference" else "swiglu would be"
    assert answer is None and refusal in said, said
    answer, said = fresh().serve("--step-budget", "0.001")
    assert answer == right, said
    print("ok first start")

    # Nothing fast is left of a heavy kernel: it refuses, unless told otherwise.
    home = fresh(",".join(f"{s}/swiglu=wrong" for s in sets))
    answer, said = home.serve()
    assert answer is None and "swiglu would be" in said and "--allow-slow" in said, said
    answer, said = home.serve("--allow-slow")
    assert answer == right, said
    print("ok too slow")

    # A known-fatal kernel is never launched: it would crash, and is not reported as crashed; nor is that a failure.
    home = fresh(f"{best}/swiglu=fatal,{best}/swiglu=crash")
    assert verdicts(home.doctor())[f"{best}/swiglu"]["verdict"] == "never run here"
    # Verdicts that cannot be kept bind this run.
    nowhere = os.path.join(where, "file")
    open(nowhere, "w").close()
    answer, said = Home(nowhere, f"{best}/swiglu=crash").serve(*slow)
    assert answer == right and "cannot be kept" in said, said
    # A damaged file counts as none.
    home = fresh()
    home.doctor()
    (kept,) = os.listdir(os.path.join(home.folder, "evenshare"))
    for damage in "", "{}", "[", '{"kernels": 3}':
        open(os.path.join(home.folder, "evenshare", kept), "w").write(damage)
        assert "verdicts" in home.run("doctor", "--kept", code=2).stderr
    home.run("doctor", "--only", "avx2/dot", "--quick", "--json")
    home.run("doctor", "--probe", "avx2", code=2), home.run("doctor", "--probe", "sse:1", code=2)
    home.run("doctor", "--probe", "avx2:99999", code=2)
    # The profile it measures is one that plan reads.
    profile = os.path.join(where, "profile.json")
    home.run("doctor", "--quick", "--only", "axpy", "--profile", profile)
    assert json.loads(home.run("plan", "--device-profile", profile, "--json").stdout)["workers"] >= 1
    print("ok the rest")
