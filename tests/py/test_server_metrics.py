"""/metrics and /slots: what they tell is what the clients saw, and never a text."""
import json
import re
import threading
import time
import urllib.request

import serving

SECRET = "plainly-a-secret-word"
LINE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)+\})? (\S+)$')


def get(server, path):
    with urllib.request.urlopen(server.url + path, timeout=20) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


def scrape(server):
    """{name + labels: value}; insists on Prometheus text, each family with HELP and TYPE before its samples."""
    kind, text = get(server, "/metrics")
    assert kind.startswith("text/plain; version=0.0.4") and text.endswith("\n") and SECRET not in text
    found, family = {}, None
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            family = line.split()[2]
        if line.startswith("#"):
            continue
        match = LINE.match(line)
        assert match and match[1].startswith(family), line
        assert match[1] + (match[2] or "") not in found, line
        found[match[1] + (match[2] or "")] = float(match[3])
    return found


def ended(metrics, how):
    return metrics[f'evenshare_requests_ended_total{{how="{how}"}}']


def body(tokens, stream=False):
    return {"messages": [{"role": "user", "content": SECRET}], "max_tokens": tokens, "ignore_eos": True, "stream": stream}


def clients_and_metrics_count_the_same():
    with serving.fake_server("capacity=8") as server:
        before = scrape(server)
        replies = {}
        lock = threading.Lock()

        def one(i):
            status, _, _ = server.post("/v1/chat/completions", b"{oops" if i % 10 == 0 else body(40, stream=i % 2 == 0))
            with lock:
                replies[status] = replies.get(status, 0) + 1
        threads = [threading.Thread(target=one, args=(i,)) for i in range(60)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert server.wait_until(lambda h: h["requests"] == 0)
        after = scrape(server)
        assert sum(replies.values()) == 60 and replies[400] == 6
        assert after["evenshare_requests_received_total"] - before["evenshare_requests_received_total"] == 60
        assert ended(after, "whole") == replies[200] and ended(after, "refused") == 60 - replies[200]
        assert ended(after, "failed") == ended(after, "left") == 0
        for status, count in replies.items():
            seen = after[f'evenshare_http_replies_total{{code="{status}"}}']
            assert seen == count or status == 200 and seen > count  # /health and /metrics answer 200 too
        assert after['evenshare_rejections_total{reason="invalid"}'] == 6
        assert after['evenshare_rejections_total{reason="queue_full"}'] == replies.get(429, 0)
        tokens = 40 * replies[200]
        assert after['evenshare_tokens_total{kind="generated"}'] == tokens
        assert after["evenshare_time_to_first_token_seconds_count"] == replies[200]
        assert after["evenshare_inter_token_seconds_count"] == tokens - replies[200]
        assert after["evenshare_request_seconds_count"] == replies[200]
        assert after['evenshare_inter_token_seconds_bucket{le="+Inf"}'] == after["evenshare_inter_token_seconds_count"]
        assert after["evenshare_requests_running"] == after["evenshare_requests_open"] == 0
        assert after['evenshare_tokens_total{kind="cached"}'] > 0


def slots_tell_what_runs_and_no_text():
    with serving.fake_server("step_us=20000") as server:
        assert json.loads(get(server, "/slots")[1]) == []
        streams = [server.connect() for _ in range(3)]
        for s in streams:
            data = json.dumps(body(2000, stream=True)).encode()
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
            s.sendall(head % len(data) + data)
        assert server.wait_until(lambda h: h["completion_tokens"] > 12)
        text = get(server, "/slots")[1]
        slots = json.loads(text)
        assert SECRET not in text and len(slots) == 3 and len({s["id"] for s in slots}) == 3
        for slot in slots:
            assert slot["is_processing"] and slot["stream"] and slot["state"] == "generating" and slot["max_tokens"] == 2000
            assert slot["prompt_tokens"] == slot["prompt_tokens_done"] > len(SECRET)
            assert 0 < slot["generated_tokens"] < 2000 and 0 < slot["age_seconds"] < 60
        assert scrape(server)["evenshare_requests_running"] == 3
        for s in streams:
            s.close()
        assert server.wait_until(lambda h: h["running"] == 0 and h["requests"] == 0)
        metrics = scrape(server)
        assert ended(metrics, "left") == 3 and metrics['evenshare_sequences_ended_total{how="cancelled"}'] == 3
        assert json.loads(get(server, "/slots")[1]) == []


def a_key_guards_both():
    with serving.real_server(serving.oracle_model(), "--ctx", "512", "--api-key", "k", "--alias", 'odd "name\\') as server:
        for path in ("/metrics", "/slots"):
            try:
                get(server, path)
                assert False, path
            except urllib.error.HTTPError as error:
                assert error.code == 401
        request = urllib.request.Request(server.url + "/metrics", headers={"Authorization": "Bearer k"})
        with urllib.request.urlopen(request, timeout=20) as reply:
            text = reply.read().decode()
        assert 'model="odd \\"name\\\\"' in text and 'evenshare_rejections_total{reason="key"} 2' in text


def a_real_engine_tells_prompt_progress_and_steps():
    with serving.real_server(serving.oracle_model(), "--ctx", "4096", "--chunk", "16", "--threads", "1") as server:
        done = []
        prompt = {"prompt": [1 + i % 200 for i in range(3000)], "max_tokens": 200, "ignore_eos": True}
        thread = threading.Thread(target=lambda: done.append(server.post("/v1/completions", prompt, 300)))
        thread.start()
        partly = False
        while thread.is_alive():
            for slot in json.loads(get(server, "/slots")[1]):
                partly |= slot["state"] == "prompt" and 0 < slot["prompt_tokens_done"] < slot["prompt_tokens"] == 3000
        thread.join()
        assert done[0][0] == 200 and partly
        end = time.monotonic() + 20  # the engine's own counters come with its next sign of life
        metrics = scrape(server)
        while metrics["evenshare_kv_pages_held"] and time.monotonic() < end:
            metrics = scrape(server)
        assert metrics["evenshare_step_seconds_count"] == metrics["evenshare_steps_total"] > 100
        assert metrics['evenshare_step_seconds_bucket{le="+Inf"}'] == metrics["evenshare_steps_total"]
        assert metrics["evenshare_step_seconds_sum"] > 0 and metrics["evenshare_preemptions_total"] == 0
        assert metrics['evenshare_cache_lookups_total{result="miss"}'] == 1
        assert metrics['evenshare_cache_bytes{what="pages",whose="cache"}'] > 0 == metrics["evenshare_kv_pages_held"]
        assert 0 < metrics["evenshare_states_used"] <= metrics["evenshare_states_total"]
        assert metrics['evenshare_tokens_total{kind="prompt"}'] == 3000
        assert metrics['evenshare_tokens_total{kind="generated"}'] == 200
        assert metrics["evenshare_kv_pages_total"] > 0


def slots_tell_who_was_moved_out_and_who_is_back():
    with serving.real_server(serving.oracle_model(), "--ctx", "1024", "--page", "16", "--reserve", "8", "--memory", "5M") as server:
        prompts, ended, seen = [[1 + i] * 40 for i in range(3)], [], {}

        def ask(prompt):
            ended.append(server.post("/v1/completions", {"prompt": prompt, "ignore_eos": True, "max_tokens": -1}, 300)[0])
        threads = [threading.Thread(target=ask, args=(p,)) for p in prompts]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            for slot in json.loads(get(server, "/slots")[1]):
                states = seen.setdefault(slot["id"], [])
                if states[-1:] != [slot["state"]]:
                    states.append(slot["state"])
        assert ended == [200] * 3 and scrape(server)["evenshare_preemptions_total"] > 0
        back = [states[states.index("moved out"):] for states in seen.values() if "moved out" in states]
        assert back and all("generating" in states for states in back), seen


def the_dashboard_asks_for_what_there_is():
    with serving.fake_server() as server:
        names = {re.match(r"[a-z_:]+", key)[0] for key in scrape(server)}
    with open(serving.SOURCE + "/docs/grafana-dashboard.json", encoding="utf8") as file:
        dashboard = json.load(file)
    asked = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            asked |= set(re.findall(r"evenshare_[a-z_]+", target["expr"]))
    missing = asked - names
    assert len(asked) >= 12 and not missing - {"evenshare_http_replies_total"}, missing


if __name__ == "__main__":
    serving.run([clients_and_metrics_count_the_same, slots_tell_what_runs_and_no_text, slots_tell_who_was_moved_out_and_who_is_back,
                 a_key_guards_both, a_real_engine_tells_prompt_progress_and_steps, the_dashboard_asks_for_what_there_is])
