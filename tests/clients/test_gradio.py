"""The page examples/clients/gradio_page.py, asked by Gradio's own client."""
# packages: gradio openai
import os
import subprocess
import sys
import tempfile
import time

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

from gradio_client import Client, handle_file

from trials import MODEL, ROOT, SPEECH, URL, client, clip, equal, finish, trial, wav

client("gradio")
page = subprocess.Popen([sys.executable, os.path.join(ROOT, "examples", "clients", "gradio_page.py"), MODEL, SPEECH, URL],
                        env=dict(os.environ, GRADIO_SERVER_PORT="7899"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
try:
    until = time.monotonic() + 60
    asked = None
    while asked is None:
        try:
            asked = Client("http://127.0.0.1:7899", verbose=False)
        except Exception:  # whatever its HTTP library raises
            if time.monotonic() > until or page.poll() is not None:
                raise
            time.sleep(0.5)

    @trial("ChatInterface of the example")
    def _():
        text = asked.predict("Once upon a time", api_name="/chat")
        text = text["content"] if isinstance(text, dict) else text
        # It is drawn, so that it is another text each time.
        assert isinstance(text, str) and len(text) > 20, text

    @trial("recording to text in the example")
    def _():
        samples, words = clip(0)
        with tempfile.NamedTemporaryFile(suffix=".wav") as f:
            f.write(wav(samples))
            f.flush()
            equal(asked.predict(handle_file(f.name), api_name="/hear").strip(), words)
finally:
    page.terminate()
    page.wait()
finish()
