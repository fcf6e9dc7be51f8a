"""A real browser without a screen: Chromium, spoken to by its DevTools protocol over two pipes."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile

PATIENCE_S = 60  # for what never comes


def find():
    for name in ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        # Ubuntu's is a script that asks for a snap.
        if path and subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0:
            return path
    return None


class Browser:
    """One page. `messages` are what its console said, `requests` the addresses that it asked for."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="fracgpu-browser-")
        to_browser, self.into = os.pipe()
        self.out, from_browser = os.pipe()

        def place_pipes():
            # Neither may lie where the other one goes.
            ends = [os.dup(to_browser), os.dup(from_browser)]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"],
            pass_fds=(3, 4), preexec_fn=place_pipes, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "TZ": "UTC", "LANG": "C.UTF-8"})
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session = b"", 0, None
        self.messages, self.requests, self.events = [], [], []
        target = next(each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.into)
        os.close(self.out)
        shutil.rmtree(self.profile, ignore_errors=True)

    def receive(self):
        while b"\0" not in self.buffer:
            assert select.select([self.out], [], [], PATIENCE_S)[0], "the browser says nothing any more"
            chunk = os.read(self.out, 1 << 20)
            assert chunk, "the browser has ended"
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(message)
        method, about = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(about["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(json.dumps(about["args"])[:2000])
        elif method == "Log.entryAdded":
            self.messages.append(about["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.messages.append("a dialog: " + about["message"])
            self.send("Page.handleJavaScriptDialog", accept=True)
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        if method:
            self.events.append(method)
        return message

    def send(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.into, json.dumps(message).encode() + b"\0")
        return self.number

    def call(self, method, **params):
        number = self.send(method, **params)
        while True:
            answer = self.receive()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def open(self, path, width=1280, height=800, dark=False, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if mobile else 1, mobile=mobile)
        self.call("Emulation.setTouchEmulationEnabled", enabled=mobile)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        self.call("Page.navigate", url="file://" + path)
        while "Page.loadEventFired" not in self.events:
            self.receive()
        # Until it has drawn itself.
        self.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def eval(self, script):
        """The value of an expression, or of a promise."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, (script, answer["exceptionDetails"])
        return answer["result"].get("value")

    def key(self, name, text="", shift=False):
        codes = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40, "ArrowUp": 38,
                 "Tab": 9, "Home": 36, "End": 35}
        about = {"key": name, "modifiers": 8 if shift else 0,
                 "windowsVirtualKeyCode": codes.get(name, ord(name.upper()[0]))}
        text = {"Enter": "\r"}.get(name, text or (name if len(name) == 1 else ""))
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1, **more)

    def drag(self, from_x, to_x, y):
        self.mouse("mousePressed", from_x, y)
        for step in range(1, 5):
            self.mouse("mouseMoved", from_x + (to_x - from_x) * step / 4, y, buttons=1)
        self.mouse("mouseReleased", to_x, y)

    def picture(self, path, full=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
