"""`evenshare bench kernels`: one JSON object that names the machine and holds a row for each kernel, all of them equal to their
references; the environment masks instruction sets, and an operation that is not there is refused with exit code 2."""
import json
import os
import subprocess

PROGRAM = os.path.join(os.environ["ES_BUILD"], "evenshare")


def bench(*arguments, **environment):
    return subprocess.run([PROGRAM, "bench", "kernels", *arguments], env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=300)


answer = bench("--only", "axpy", "--json")
assert answer.returncode == 0, answer.stderr
report = json.loads(answer.stdout)
assert report["machine"]["cores"] >= 1 and report["machine"]["cpu"]
assert report["machine"]["instruction_sets"][-1] == "reference"
best = report["machine"]["instruction_sets"][0]
(row,) = report["rows"]
assert row["operation"] == "axpy" and row["equal"] is True and row["difference"] == "" and row["cases"] > 10
assert row["instruction_set"] == best and row["numeric"] == "f32"
assert 0 < row["best_seconds"] <= row["seconds"]

masked = json.loads(bench("--only", "axpy", "--json", ES_INSTRUCTION_SET="reference").stdout)
assert masked["rows"][0]["instruction_set"] == "reference"

everything = json.loads(bench("--only", "decode", "--json", "--instruction-set", "all").stdout)
assert len(everything["rows"]) == 11 * len(report["machine"]["instruction_sets"])
assert all(row["equal"] for row in everything["rows"])

refused = bench("--only", "nothing")
assert refused.returncode == 2 and "nothing" in refused.stderr
print("ok")
