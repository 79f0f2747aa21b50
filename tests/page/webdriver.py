"""A browser driven over the WebDriver protocol, with nothing but Python's own library.

Browser() starts chromedriver, which starts a headless Chromium with a profile of its own, and
ends both. Its methods are the few that the page's tests need."""
import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"enter": "\ue007", "escape": "\ue00c", "tab": "\ue004", "shift": "\ue008", "up": "\ue013",
        "space": " ", "backspace": "\ue003"}


class WebDriverError(Exception):
    pass


def missing():
    """What a machine lacks to run a browser, or None."""
    for program in ("chromium", "chromedriver"):
        if not shutil.which(program):
            return program
    return None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Browser:
    def __init__(self, arguments=(), width=1200, height=800, dark=False):
        self.folder = tempfile.mkdtemp(prefix="reel-page-")
        port = free_port()
        self.base = "http://127.0.0.1:%d" % port
        self.driver = subprocess.Popen(["chromedriver", "--port=%d" % port],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.wait_for_driver()
            options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                       "--hide-scrollbars", "--user-data-dir=" + self.folder,
                       "--window-size=%d,%d" % (width, height), *arguments]
            answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
                "browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                "goog:chromeOptions": {
                    "args": options, "prefs": {"download.default_directory": self.folder}}}}})
            self.path = "/session/" + answer["sessionId"]
            self.emulate(width, height, dark)
        except BaseException:
            self.close()
            raise

    def wait_for_driver(self):
        end = time.time() + 30
        while time.time() < end:
            try:
                if self.call("GET", "/status")["ready"]:
                    return
            except OSError:
                time.sleep(0.1)
        raise WebDriverError("chromedriver did not start")

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as e:
            raise WebDriverError(json.load(e)["value"]["message"].split("\n")[0]) from None

    def session(self, method, path, body=None):
        return self.call(method, self.path + path, body)

    def devtools(self, command, parameters):
        return self.session("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def emulate(self, width, height, dark=False, reduced=False):
        """The page's size (a window is never as narrow as a phone) and the system's wishes."""
        self.devtools("Emulation.setDeviceMetricsOverride",
                      {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.devtools("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if reduced else "no-preference"}]})

    def open(self, url):
        self.go("/url", {"url": url})

    def reload(self):
        self.go("/refresh", {})

    def go(self, command, body):
        """On a busy machine the driver returns while the page before still answers."""
        self.run("window.isLeft = true")
        self.session("POST", command, body)
        self.wait("return !window.isLeft && document.readyState === 'complete'", "the next page")

    def run(self, script, *arguments):
        return self.session("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector):
        return self.session("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.session("POST", "/element/%s/click" % self.find(selector), {})

    def type(self, selector, text):
        self.session("POST", "/element/%s/value" % self.find(selector), {"text": text})

    def press(self, *names):
        """Presses keys for whatever has the focus; all but the last are held meanwhile."""
        keys = [KEYS.get(n, n) for n in names]
        down = [{"type": "keyDown", "value": k} for k in keys]
        up = [{"type": "keyUp", "value": k} for k in reversed(keys)]
        self.session("POST", "/actions", {"actions": [
            {"type": "key", "id": "keyboard", "actions": down + up}]})

    def write(self, text):
        for c in text:
            self.press(c)

    def wait(self, script, what, seconds=20):
        """Waits until the script's value is true, and returns it."""
        end = time.time() + seconds
        while time.time() < end:
            value = self.run(script)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError("%s: waited %d seconds for it" % (what, seconds))

    def errors(self):
        """Errors that the page's console holds since the last call."""
        return [e["message"] for e in self.session("POST", "/se/log", {"type": "browser"})
                if e["level"] == "SEVERE"]

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.session("GET", "/screenshot")))

    def close(self):
        try:
            if hasattr(self, "path"):
                self.call("DELETE", self.path)
        except (OSError, WebDriverError):
            pass
        self.driver.terminate()
        self.driver.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
