"""A headless Chromium over the WebDriver protocol. Uses only the standard library."""
import base64, json, pathlib, subprocess, time, urllib.error, urllib.request


class Browser:
    """`with Browser(width, height) as browser:`. Needs the packages chromium and chromium-driver."""

    def __init__(self, width=1400, height=900, port=9515):
        self.base = f"http://127.0.0.1:{port}"
        self.driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL)
        for _ in range(100):
            try:
                self._call("GET", "/status")
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},{height}"]
        options = {"args": arguments}
        body = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}}
        self.session = "/session/" + self._call("POST", "/session", body)["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._call("DELETE", self.session)
        self.driver.terminate()

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            return json.load(urllib.request.urlopen(request, timeout=60))["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def open(self, path):
        self._call("POST", self.session + "/url", {"url": pathlib.Path(path).resolve().as_uri()})

    def run(self, script, *arguments):
        """The value of a function body in the page."""
        return self._call("POST", self.session + "/execute/sync", {"script": script, "args": list(arguments)})

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self._call("GET", self.session + "/screenshot")))

    def log(self):
        """Messages of the console since the last call, including script errors."""
        return [entry["message"] for entry in self._call("POST", self.session + "/se/log", {"type": "browser"})]

    def _act(self, kind, actions, **parameters):
        source = {"type": kind, "id": kind, "actions": actions, **parameters}
        self._call("POST", self.session + "/actions", {"actions": [source]})

    def move(self, x, y):
        self._act("pointer", [{"type": "pointerMove", "duration": 0, "x": int(x), "y": int(y)}])

    def click(self, x, y):
        self.drag(x, y, x, y)

    def drag(self, x0, y0, x1, y1):
        self._act("pointer", [{"type": "pointerMove", "duration": 0, "x": int(x0), "y": int(y0)},
                              {"type": "pointerDown", "button": 0},
                              {"type": "pointerMove", "duration": 30, "x": int(x1), "y": int(y1)},
                              {"type": "pointerUp", "button": 0}])

    def wheel(self, x, y, down):
        self._act("wheel", [{"type": "scroll", "duration": 0, "x": int(x), "y": int(y), "deltaX": 0, "deltaY": int(down)}])

    def keys(self, text):
        self._act("key", [action for key in text for action in ({"type": "keyDown", "value": key}, {"type": "keyUp", "value": key})])

    def give_files(self, selector, *paths):
        """Chooses files in an <input type=file>."""
        found = self._call("POST", self.session + "/element", {"using": "css selector", "value": selector})
        text = "\n".join(str(pathlib.Path(path).resolve()) for path in paths)
        self._call("POST", self.session + "/element/" + next(iter(found.values())) + "/value", {"text": text})
