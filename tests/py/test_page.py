"""The chat page in Chromium, as somebody uses it: in front of a real model, and of a server that answers from a script.
# long"""
import json
import os
import shutil
import tempfile
import time

import serving
from scripted import Scripted, chunk, usage
from serving import find_model, real_server

try:
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    serving.skip("selenium is not there: ./dev test --long installs it")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not CHROMIUM or not DRIVER:
    serving.skip("chromium and chromium-driver are not there: ./dev test --long installs them")

HOSTILE = """<img src=x onerror="window.bad = 1"> <script>window.bad = 2</script> <b>bold?</b>

[a](javascript:window.bad=3) [b](data:text/html,<script>window.bad=4</script>) ![c](http://127.0.0.1:9/leak.png) [d](https://example.org/ok)

| <svg onload=window.bad=5> | b |
|---|---|
| <iframe src="http://127.0.0.1:9/"></iframe> | **c** |

- <style>body{display:none}</style>
  1. `<a href="javascript:window.bad=6">x</a>`

```html
<script>window.bad = 7</script>
```
"""
ANSWERS = {
    "hostile": [chunk({"role": "assistant", "content": ""}), *(chunk({"content": HOSTILE[i:i + 7]}) for i in range(0, len(HOSTILE), 7)),
                chunk({}, "stop"), usage(1000, 100, 750)],
    "think": [chunk({"reasoning_content": "First I "}), 0.05, chunk({"reasoning_content": "think."}), chunk({"content": "Then I speak."}),
              chunk({}, "stop")],
    "think in the text": [chunk({"content": "<think>\nHm"}), chunk({"content": "m.\n</think>\n\nYes."}), chunk({}, "stop")],
    "tool": [chunk({"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "get_weather", "arguments": '{"ci'}}]}),
             chunk({"tool_calls": [{"index": 0, "function": {"arguments": 'ty": "Norby"}'}}]}), chunk({}, "tool_calls")],
    "sunny": [chunk({"content": "It is sunny."}), chunk({}, "stop")],
    "slow": [chunk({"content": "begin "}), *([0.05, chunk({"content": "more "})] * 400)],
    "prompt": [chunk({}, prompt_progress={"total": 1000, "cache": 100, "processed": 340, "time_ms": 5}), 30.0],
    "cut": [chunk({"content": "half"}), "cut"],
    "error": [chunk({"content": "half"}), {"error": {"message": "the engine broke"}}],
}


class Browser:
    """Chromium on one address; leaving it insists that nothing was said on the console and nobody else was asked."""

    def __init__(self, url, width=1200, height=800, profile=None, allowed=()):
        self.url, self.allowed = url, allowed
        options = webdriver.ChromeOptions()
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},{height}"):
            options.add_argument(flag)
        if profile:
            options.add_argument("--user-data-dir=" + profile)
        options.binary_location = CHROMIUM
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                said = [line for line in self.driver.get_log("browser") if not any(a in line["message"] for a in self.allowed)]
                assert not said, said
                for line in self.driver.get_log("performance"):
                    message = json.loads(line["message"])["message"]
                    if message["method"] == "Network.requestWillBeSent":
                        asked = message["params"]["request"]["url"]
                        assert asked.startswith((self.url, "data:", "blob:", "chrome:")), asked
        finally:
            self.driver.quit()

    def open(self, ready=True):
        self.driver.get(self.url + "/")
        if ready:
            self.wait("return document.body.dataset.ready")

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, script, seconds=30.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.js(script)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"never true: {script}; the page holds: {self.js('return document.body.innerText')[:2000]}")

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, selector):
        self.find(selector).click()

    def send(self, text, wait=True):
        self.find("#input").send_keys(text.replace("\n", Keys.SHIFT + Keys.ENTER + Keys.NULL), Keys.ENTER)
        if wait:
            self.wait("return app.answers.size === 0 && activePath(app.conversation).length > 0")

    def texts(self):
        """What the messages on show say, without buttons and numbers."""
        return self.js("return [...document.querySelectorAll('.message > .body')].map((b) => b.innerText.trim())")


def the_prompts_of_the_first_screen_work():
    own = os.path.join(serving.SOURCE, "models", "evenshare-default.gguf")
    if not os.path.exists(own):
        print("the default model is not there; its prompts were not tried")
        return
    with real_server(own) as server, Browser(server.url) as b:
        assert len(b.driver.find_elements(By.CSS_SELECTOR, ".card")) == 3
        answers = []
        for i in range(3):
            b.js("startConversation()")
            b.js(f"document.querySelectorAll('.card')[{i}].click()")
            b.wait("return app.answers.size === 0 && activePath(app.conversation).length === 2", 120)
            answers.append(b.texts()[1])
        assert "1960" in answers[0] and "4821" not in answers[0]
        assert json.loads(answers[1]) == [{"name": "Ada", "animal": "fox", "color": "red"}, {"name": "Tom", "animal": "owl", "color": "blue"},
                                          {"name": "Mara", "animal": "cat", "color": "black"}]
        assert "fox" in answers[2] and "lantern" in answers[2] and len(answers[2]) > 200
        assert b.js("return document.querySelectorAll('#conversations li').length") == 3


def a_conversation_goes_on_and_survives_a_reload():
    with real_server(find_model(), "--ctx", "4096") as server, Browser(server.url) as b:
        b.send("Tell me a story about a fox.")
        b.send("Hello!")
        before = b.texts()
        assert len(before) == 4 and len(before[1]) > 50
        figures = b.js("return document.querySelector('#context .figures').textContent")
        assert "of 4,096 tokens" in figures, figures
        assert "from cache" in b.find(".message:last-child .stats").text
        assert "tokens/s" in b.find(".message:last-child .stats").text
        b.open()
        assert b.texts() == before
        b.click("#open-status")
        b.wait("return /budget/.test(document.getElementById('status').innerText)")
        words = b.find("#status").text
        assert "running" in words and "pages in use" in words and "Step time" in words
        b.js("startConversation()")
        assert not b.find("#messages").text and b.find("#welcome").is_displayed()


def an_edit_makes_a_branch_and_both_stay():
    with Scripted(ANSWERS) as server, Browser(server.url) as b:
        b.send("think")
        b.send("sunny")
        b.js("[...document.querySelectorAll('.message.user')][0].querySelector('[aria-label^=\"Edit\"]').click()")
        field = b.find(".edit textarea")
        assert field.get_attribute("value") == "think"
        field.clear()
        field.send_keys("sunny", Keys.ENTER)
        b.wait("return app.answers.size === 0 && activePath(app.conversation).length === 2")
        assert b.texts() == ["sunny", "It is sunny."]
        b.click(".message.user [aria-label='Earlier version']")
        assert [t.split("\n")[-1] for t in b.texts()] == ["think", "Then I speak.", "sunny", "It is sunny."]
        b.js("[...document.querySelectorAll('.message.assistant')][1].querySelector('[aria-label=\"Answer again\"]').click()")
        b.wait("return app.answers.size === 0 && document.querySelectorAll('.branches').length === 2")
        assert len(server.requests) == 4
        assert [m["content"] for m in server.requests[-1]["messages"]] == ["think", "Then I speak.", "sunny"]


def what_a_model_writes_stays_text():
    # the test tries innerHTML itself, and the browser reports the refusal
    with Scripted(ANSWERS) as server, Browser(server.url, allowed=("TrustedHTML",)) as b:
        b.send("hostile")
        assert b.js("return window.bad") is None
        inside = "document.querySelectorAll('.markdown ' + arguments[0]).length"
        for name in ("img", "script", "iframe", "style", "svg:not(.icon)", "b"):
            assert b.js("return " + inside, name) == 0, name
        assert b.js("return [...document.querySelectorAll('.markdown a')].map((a) => a.href)") == [
            "http://127.0.0.1:9/leak.png", "https://example.org/ok", "http://127.0.0.1:9/"]
        assert b.js("return " + inside, "td strong") == 1 and b.js("return " + inside, "li li code") == 1
        assert "<script>window.bad = 7</script>" in b.find(".code code").text
        assert b.js("try { document.body.innerHTML = '<b>x</b>'; return false; } catch (e) { return e instanceof TypeError; }")
        assert b.find("#context .bar").get_attribute("aria-label").startswith("Context: 1,100 of 4,096")
        # long and nasty, but quick: near linear time and bounded nesting
        b.js("""window.texts = ["[".repeat(50000), "*a ".repeat(20000), "> ".repeat(20000), "`".repeat(20000) + "a", "- ".repeat(20000),
                    "- a" + "\\n".repeat(50000) + "b", "#" + " ".repeat(50000) + "x", "|".repeat(20000) + "\\n" + "|-".repeat(20000),
                    "~~a ".repeat(20000), "a|b\\n-" + " ".repeat(50000) + "x"];
                window.slow = texts.map((t) => { const s = performance.now(); renderMarkdown(document.createElement("div"), t);
                                                 return performance.now() - s; });""")
        assert max(b.js("return window.slow")) < 10000, b.js("return window.slow")


def thinking_is_folded_and_tools_are_shown():
    with Scripted(ANSWERS) as server, Browser(server.url) as b:
        for text, thought, answer in (("think", "First I think.", "Then I speak."), ("think in the text", "Hmm.", "Yes.")):
            b.js("startConversation()")
            b.send(text)
            assert b.js("return document.querySelector('.thinking').open") is False
            assert b.js("return document.querySelector('.thought').textContent") == thought
            assert b.find(".markdown").text == answer
        b.js("startConversation()")
        b.send("tool")
        assert "get_weather" in b.find(".call summary").text and '"city": "Norby"' in b.find(".call pre").text
        b.find(".results textarea").send_keys("sunny")
        b.click(".results .primary")
        b.wait("return app.answers.size === 0 && activePath(app.conversation).length === 4")
        assert b.texts()[-1] == "It is sunny."
        sent = server.requests[-1]["messages"]
        assert sent[1]["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city": "Norby"}'}
        assert sent[2] == {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}


def stopping_and_breaking_keep_what_came():
    with Scripted(ANSWERS) as server, Browser(server.url) as b:
        b.send("slow", wait=False)
        b.wait("return document.querySelectorAll('.markdown').length && /more more/.test(document.querySelector('.markdown').innerText)")
        assert b.find("#send").get_attribute("aria-label") == "Stop"
        b.find("#input").send_keys(Keys.ESCAPE)
        b.wait("return app.answers.size === 0")
        assert b.texts()[1].startswith("begin more") and b.texts()[1].endswith("Stopped.")
        b.send("cut")
        assert b.texts()[3].startswith("half") and "before the answer was complete" in b.texts()[3]
        b.send("error")
        assert b.texts()[5].startswith("half") and "the engine broke" in b.texts()[5]
        b.send("prompt", wait=False)
        b.wait("return /Reading 1,000 tokens, 34 %/.test(document.getElementById('messages').innerText)")
        b.click("#send")
        b.wait("return app.answers.size === 0")


def settings_and_files_reach_the_server():
    with Scripted(ANSWERS) as server, Browser(server.url) as b, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "notes.txt")
        with open(path, "w", encoding="utf-8") as out:
            out.write("The door is green.\n")
        b.click("#open-settings")
        b.find("#set-system").send_keys("Be brief.")
        b.find("#set-temperature").send_keys("0.3")
        b.find("#set-top_k").send_keys("20")
        b.js("document.getElementById('set-thinking').value = 'off'")
        b.click("#settings .primary")
        b.find("#file").send_keys(path)
        b.wait("return app.files.length === 1")
        server.answers["notes.txt:\n\nThe door is green.\n\nWhich?"] = ANSWERS["sunny"]
        b.send("Which?")
        request = server.requests[-1]
        assert request["messages"][0] == {"role": "system", "content": "Be brief."}
        assert request["messages"][1]["content"] == "notes.txt:\n\nThe door is green.\n\nWhich?"
        assert request["temperature"] == 0.3 and request["top_k"] == 20 and "top_p" not in request
        assert request["chat_template_kwargs"] == {"enable_thinking": False} and request["stream_options"] == {"include_usage": True} and request["return_progress"] is True
        assert "notes.txt" in b.texts()[0]


def the_key_is_asked_for_and_kept():
    with Scripted(ANSWERS) as server:
        server.key = "sesame"
        browser = Browser(server.url, allowed=("401",))
        browser.open = lambda ready=True: browser.driver.get(server.url + "/")
        with browser as b:
            b.wait("return document.getElementById('key').open")
            b.find("#key-input").send_keys("sesame", Keys.ENTER)
            b.wait("return app.model === 'scripted'")
            b.wait("return document.body.dataset.ready")
            b.send("sunny")
            assert b.texts()[-1] == "It is sunny."
            server.key = "changed"
            b.send("sunny", wait=False)
            b.wait("return document.getElementById('key').open")
            b.find("#key-input").send_keys("changed", Keys.ENTER)
            b.wait("return app.answers.size === 0 && activePath(app.conversation).length === 4 && !document.querySelector('.error')")
            assert b.texts()[-1] == "It is sunny."
            assert b.js("return Object.keys(localStorage).filter((name) => localStorage[name] === 'changed').length") == 0


def phones_and_dark_rooms_are_served():
    with Scripted(ANSWERS) as server:
        with Browser(server.url, width=380, height=720) as b:
            b.send("hostile")
            assert b.js("return document.documentElement.scrollWidth <= innerWidth")
            assert b.js("return getComputedStyle(document.getElementById('sidebar')).visibility") == "hidden"
            b.click("#open-sidebar")
            b.wait("return getComputedStyle(document.getElementById('sidebar')).visibility === 'visible'")
            b.find("body").send_keys(Keys.ESCAPE)
            b.wait("return !document.body.classList.contains('sidebar-open')")
            for button in b.driver.find_elements(By.CSS_SELECTOR, "button"):
                assert button.get_attribute("aria-label") or button.get_attribute("textContent").strip()
        with Browser(server.url) as b:
            light = b.js("return getComputedStyle(document.documentElement).backgroundColor")
            b.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
            dark = b.js("return getComputedStyle(document.documentElement).backgroundColor")
            assert light == "rgb(253, 253, 251)" and dark == "rgb(21, 24, 27)"
            b.click("#theme")
            assert b.js("return getComputedStyle(document.documentElement).backgroundColor") == light
            b.open()
            assert b.js("return getComputedStyle(document.documentElement).backgroundColor") == light


if __name__ == "__main__":
    serving.run([the_prompts_of_the_first_screen_work, a_conversation_goes_on_and_survives_a_reload, an_edit_makes_a_branch_and_both_stay,
                 what_a_model_writes_stays_text, thinking_is_folded_and_tools_are_shown, stopping_and_breaking_keep_what_came,
                 settings_and_files_reach_the_server, the_key_is_asked_for_and_kept, phones_and_dark_rooms_are_served])
