"""`evenshare plan` prints the worked figures, and plans for a device that isn't here."""
import json
import os
import subprocess
import tempfile

PROGRAM = os.path.join(os.environ["ES_BUILD"], "evenshare")


def run(*arguments, code=0):
    done = subprocess.run([PROGRAM, "plan", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, (arguments, done.returncode, done.stderr)
    return done.stdout if code == 0 else done.stderr


text = run("--tokens", 100000, "--partition", 512, "--workers", 16)
for figure in ["196 of 512 tokens", "12.25 units, 13 waves", "4 big of 13 units, 12 normal of 12 units"]:
    assert figure in text, text
text = run("--tokens", 100000, "--partition", 1024, "--workers", 16)
for figure in ["98 of 1024 tokens", "6.125 units, 7 waves", "2 big of 7 units, 14 normal of 6 units"]:
    assert figure in text, text

with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    def profile(text):
        file.seek(0), file.truncate(), file.write(text), file.flush()
        return file.name
    card = {"name": "my card", "workers": 16, "unit_tokens": 512, "element_bytes": 2, "worker_gb_per_second": 40,
            "gb_per_second": 320, "unit_microseconds": 1, "meet_microseconds": 10, "merge_gb_per_second": 1}
    got = json.loads(run("--tokens", 100000, "--query-heads", 8, "--kv-heads", 2, "--json", "--device-profile",
                         profile(json.dumps(card))))
    assert got["device"] == "my card" and got["workers"] == 16 and got["unit_tokens"] == 512
    assert got["units"] == 196 and got["total_units"] == 392 and got["waves"] == 25 and got["units_per_worker"] == 24.5
    assert abs(got["v1_seconds"] - 196 * (1e-6 + 262144 / 40e9 * 12 / 9)) < 1e-12 and got["choice"] == "v2"
    for bad in ["", "[]", "{", '{"workers": 0}', '{"workers": 1.5}', '{"workers": "many"}', '{"gb_per_second": -1}',
                '{"colour": 1}', '{"name": 7}', '{"workers": 1, "workers": 2}', "\x00", '{"unit_tokens": 1e99}']:
        assert file.name in run("--device-profile", profile(bad), code=2), bad
run("--device-profile", "/no/such/profile.json", code=2)
run("--query-heads", 3, "--kv-heads", 2, code=2)
run("--tokens", 0, code=2)
print("ok")
