#!/usr/bin/env python3
"""The page of `reel serve` in a headless Chromium: against the program with its demo models, and
against a stub that says what no real model can be made to say.

usage: tests/page/test_page.py REEL FOLDER [WORD...]   pictures go to FOLDER; only tests whose name
holds one of the words. `make check-page` calls it; it needs chromium and chromedriver."""
import base64
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.request
import wave

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from stub import HOSTILE, ROOT, SAMPLE, Stub
from webdriver import Browser, missing

IDLE = "return !document.querySelector('#send').hidden"
TEMPLATE = ("{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + "
            "'<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}"
            "{{- '<|im_start|>assistant\\n' }}{%- if enable_thinking is defined and "
            "enable_thinking %}{{- '<think>\\n' }}{%- endif %}{%- endif %}")


# ---- what the tests share -----------------------------------------------------------------------

def mu_law(byte):
    byte = ~byte & 255
    value = (((byte & 15) << 3) + 132 << (byte >> 4 & 7)) - 132
    return -value if byte & 128 else value


def clips(numbers):
    """Recordings of the speech model's folder, as 16 kHz samples, and what they say."""
    folder = ROOT / "models/speech"
    golden = json.loads((folder / "golden.json").read_text())
    sound = (folder / "golden.ulaw").read_bytes()
    found = []
    for n in numbers:
        clip = golden["clips"][n]
        part = sound[clip["at"]:clip["at"] + clip["samples"]]
        found.append(([mu_law(b) for b in part], clip["said"]))
    return found


def write_wav(path, samples, rate=16000):
    with wave.open(str(path), "wb") as w:
        w.setparams((1, 2, rate, 0, "NONE", ""))
        w.writeframes(struct.pack("<%dh" % len(samples), *samples))


class Place:
    """The servers, the recordings and the browser that the tests use."""

    def __init__(self, reel, folder):
        self.reel = os.path.abspath(reel)
        self.pictures = pathlib.Path(folder)
        self.pictures.mkdir(parents=True, exist_ok=True)
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="reel-page-test-"))
        self.programs = []
        self.stub = None
        self.browser = None
        self.failed = False  # a program did not end well
        try:
            self.prepare()
        except BaseException:
            self.close()
            raise

    def prepare(self):
        self.make_talker()
        self.url, _ = self.serve("demo", "demo-speech", str(self.work / "talker"))
        self.stub = Stub()
        pause = [0] * 16000
        spoken = []
        for samples, _ in clips(range(3)):
            spoken += samples + pause
        write_wav(self.work / "spoken.wav", pause + spoken)
        write_wav(self.work / "minutes.wav", (pause + spoken) * 20)
        self.browser = Browser(["--use-fake-device-for-media-stream",
                                "--use-fake-ui-for-media-stream", "--use-file-for-fake-audio-capture="
                                + str(self.work / "spoken.wav") + "%noloop"])

    def make_talker(self):
        """The demo model with a chat template, which it lacks: it answers with its stories."""
        shutil.copytree(ROOT / "models/demo", self.work / "talker")
        path = self.work / "talker/tokenizer_config.json"
        config = json.loads(path.read_text())
        config["chat_template"] = TEMPLATE
        path.write_text(json.dumps(config))

    def serve(self, *arguments):
        program = subprocess.Popen([self.reel, "serve", *arguments, "--port", "0"], text=True,
                                   stderr=subprocess.PIPE)
        program.log = []
        self.programs.append(program)
        url = None
        left = sum(1 for a in arguments if not a.startswith("--") and "key" not in a)
        while left:
            line = program.stderr.readline()
            if not line:
                raise AssertionError("reel serve ended")
            found = re.search(r"listening at (http://\S+)", line)
            url = found.group(1) + "/" if found else url
            left -= " is ready" in line
        # The program waits for nobody who reads its log, so somebody has to.
        threading.Thread(target=lambda: program.log.extend(program.stderr), daemon=True).start()
        return url, program

    def close(self):
        if self.browser:
            self.browser.close()
        for p in self.programs:
            p.terminate()
            if p.wait() != 0:
                print("FAIL reel serve ended with %d: %s" % (p.returncode, "".join(p.log[-30:])))
                self.failed = True
        if self.stub:
            self.stub.end()
        shutil.rmtree(self.work, ignore_errors=True)


def start(p, url=None, model=None, width=1200, height=800, dark=False):
    """A page without anything kept from before."""
    b = p.browser
    b.emulate(width, height, dark)
    b.open((url or p.url) + "health")
    b.run("localStorage.clear(); sessionStorage.clear()")
    b.open(url or p.url)
    b.wait("return document.querySelector('#model').value || null", "the model list")
    if model:
        choose(b, model)
    b.errors()
    return b


def choose(b, model):
    b.run("const m = document.querySelector('#model'); m.value = arguments[0];"
          "m.dispatchEvent(new Event('change'))", model)


def ask(b, text, wait=True):
    b.type("#question", text)
    b.press("enter")
    b.wait("return document.querySelectorAll('.answer').length > 0", "an answer's place")
    if wait:
        b.wait(IDLE, "the end of the answer", 60)


def settle(b, **settings):
    b.run("localStorage.setItem('reel/settings', JSON.stringify(arguments[0]))", settings)
    again(b)


def again(b):
    """Loads the page anew, and waits for it."""
    b.reload()
    b.wait("return document.querySelector('#model').value || null", "the model list")


def last_answer(b):
    return b.run("const a = [...document.querySelectorAll('.answer .md')].pop();"
                 "return a ? a.textContent : ''")


def note(b):
    return b.run("const n = [...document.querySelectorAll('.answer .note')].pop();"
                 "return n ? n.textContent : ''")


def equal(got, wanted, what):
    if got != wanted:
        raise AssertionError("%s: %r instead of %r" % (what, got, wanted))


def true(value, what):
    if not value:
        raise AssertionError(what)


def no_errors(b):
    equal(b.errors(), [], "errors in the console")


def get(url, **headers):
    """Code, headers and body of a plain request."""
    request = urllib.request.Request(url, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


# ---- against the program ------------------------------------------------------------------------

def the_page_loads_and_lists_the_models(p):
    b = start(p)
    names = b.run("return [...document.querySelectorAll('#model option')].map((o) => o.value)")
    equal(names, ["demo", "talker"], "models that answer")
    equal(b.run("return document.querySelector('#views').hidden"), False, "views are hidden")
    no_errors(b)
    b.picture(p.pictures / "empty.png")


def files_come_once_and_with_their_policy(p):
    for name in [""] + ["page/" + f.name for f in (ROOT / "src/server/page").iterdir()]:
        code, headers, body = get(p.url + name, Accept_Encoding="gzip, br")
        equal(code, 200, name)
        source = ROOT / "src/server/page" / (name[len("page/"):] or "index.html")
        equal(gzip.decompress(body), source.read_bytes(), name)
        for word in ("default-src 'none'", "script-src 'self'", "require-trusted-types-for 'script'"):
            true(word in headers["Content-Security-Policy"], "%s: no %s" % (name, word))
        equal(headers["X-Content-Type-Options"], "nosniff", name)
        true("unsafe" not in headers["Content-Security-Policy"], "an unsafe policy")
        code, _, body = get(p.url + name, If_None_Match=headers["ETag"], Accept_Encoding="gzip")
        equal((code, body), (304, b""), name + " again")
    for name in ("page/", "page/nothing.js", "page/../page/page.js", "page/page.js/", "pages", "page"):
        equal(get(p.url + name, Accept_Encoding="gzip")[0], 404, name)
    equal(get(p.url, Accept_Encoding="br")[0], 406, "a client that does not unpack")


def an_answer_streams_with_its_pace(p):
    b = start(p, model="talker")
    settle(b, max_tokens=200, temperature=0)
    choose(b, "talker")
    b.run("window.sizes = []; new MutationObserver(() => window.sizes.push("
          "document.querySelector('#messages').textContent.length))"
          ".observe(document.querySelector('#messages'), {subtree: true, childList: true,"
          " characterData: true})")
    ask(b, "Tell me of a ship")
    true(b.run("return new Set(window.sizes).size") > 3, "the answer came at once, not as a stream")
    true(len(last_answer(b)) > 300, "the answer is short: " + last_answer(b))
    pace = b.run("return [...document.querySelectorAll('.pace')].pop().textContent")
    true(re.fullmatch(r"[\d,]+ tokens/s · first token [\d.]+ m?s · 200 tokens · prompt \d+", pace),
         "the pace reads " + pace)
    equal(note(b), "The limit of tokens was reached.", "the note")
    no_errors(b)


def escape_stops_and_the_server_is_free_again(p):
    b = start(p, model="talker")
    settle(b, max_tokens=900, temperature=1)
    choose(b, "talker")
    ask(b, "Tell me of a ship", wait=False)
    b.wait("const m = document.querySelector('.answer .md'); return m && m.textContent.length > 50",
           "the first words")
    b.press("escape")
    b.wait(IDLE, "the end")
    equal(note(b), "Stopped.", "the note")
    true(len(last_answer(b)) >= 50, "what had come is lost")
    settle(b, max_tokens=5)
    choose(b, "talker")
    ask(b, "Again")
    true(last_answer(b), "no answer after a stop")
    no_errors(b)


def an_answer_is_made_anew_and_a_question_edited(p):
    b = start(p, model="talker")
    settle(b, max_tokens=12, temperature=1)
    choose(b, "talker")
    ask(b, "First question")
    before = last_answer(b)
    b.click(".answer .acts button[aria-label='Answer anew']")
    b.wait(IDLE, "the end")
    equal(b.run("return document.querySelectorAll('.answer').length"), 1, "answers")
    true(last_answer(b) != before, "the same words again at temperature 1")
    b.click(".question button")
    equal(b.run("return document.activeElement.value"), "First question", "the field's text")
    b.write("!")
    b.press("enter")
    time.sleep(0.1)
    b.wait(IDLE, "the end")
    equal(b.run("return [...document.querySelectorAll('.bubble')].map((x) => x.textContent)"),
          ["First question!"], "questions")
    equal(b.run("return document.querySelectorAll('.answer').length"), 1, "answers")
    no_errors(b)


def settings_reach_the_server(p):
    b = start(p, model="talker")
    b.click("#settings-open")
    for name, value in (("temperature", "1"), ("seed", "7"), ("max_tokens", "9"), ("top_k", "50")):
        b.type("#s-" + name, value)
    b.click("#settings-form [type=submit]")
    said = []
    for _ in range(2):
        ask(b, "A question")
        said.append(last_answer(b))
        true("· 9 tokens ·" in b.run("return document.querySelector('.pace').textContent"), "the limit")
        b.click("#new")
    equal(said[0], said[1], "two answers of one seed")
    no_errors(b)


def conversations_are_kept_and_deleted(p):
    b = start(p, model="talker")
    settle(b, max_tokens=8)
    choose(b, "talker")
    ask(b, "Remember this one")
    answer = last_answer(b)
    again(b)
    equal(b.run("return document.querySelectorAll('.conversation').length"), 1, "conversations")
    equal(b.run("return document.querySelectorAll('.question').length"), 0, "an open conversation")
    b.click(".conversation")
    equal(last_answer(b), answer, "the answer after a reload")
    b.run("document.querySelector('#conversations .icon').focus()")
    b.press("enter")
    equal(b.run("return Object.keys(localStorage).filter((k) => k.startsWith('reel/c/'))"), [],
          "what is kept")
    equal(b.run("return document.activeElement.id"), "new", "the focus after deleting")
    no_errors(b)


def a_keyboard_reaches_everything(p):
    b = start(p, model="talker")
    settle(b, max_tokens=8)
    choose(b, "talker")
    b.write("By keys")
    b.press("shift", "enter")
    b.write("alone")
    b.press("enter")
    b.wait("return document.querySelectorAll('.answer').length === 1", "an answer")
    b.wait(IDLE, "the end")
    equal(b.run("return document.querySelector('.bubble').textContent"), "By keys\nalone", "the question")
    b.run("document.querySelector('.skip').focus()")
    seen = []
    for _ in range(40):
        b.press("tab")
        seen.append(b.run("""
            const e = document.activeElement, s = getComputedStyle(e);
            const ring = s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0;
            const own = e.id === 'question' || e.id === 'scroll';
            return [e.id || e.getAttribute('aria-label') || e.textContent.trim(), ring || own,
                e === document.body]"""))
        if seen[-1][2]:
            seen.pop() # from the page's end to its beginning
    names = [s[0] for s in seen]
    for wanted in ("new", "By keys alone", "drawer-toggle", "view-chat", "view-transcribe", "model",
                   "theme", "settings-open", "Edit this question", "Copy the answer", "Answer anew",
                   "question"):
        true(wanted in names, "Tab does not reach %s: %s" % (wanted, names))
    true(names.index("new") < names.index("theme") < names.index("Answer anew")
         < names.index("question"), "the order of the focus: %s" % names)
    equal([s[0] for s in seen if not s[1]], [], "without a visible focus")
    no_errors(b)


def everything_has_a_name(p):
    b = start(p, model="talker")
    equal(b.run("""
        const named = (e) => e.getAttribute('aria-label') || e.textContent.trim() ||
            (e.labels && [...e.labels].some((l) => l.textContent.trim()));
        return [...document.querySelectorAll('button, input, select, textarea, dialog')]
            .filter((e) => !named(e)).map((e) => e.outerHTML.slice(0, 100))"""), [],
          "controls without a name")
    equal(b.run("return document.querySelectorAll('[style], [onclick]').length"), 0,
          "attributes that the policy forbids")


def a_page_of_360_pixels_does_not_scroll_sideways(p):
    b = start(p, url=p.stub.url, width=360, height=700)
    ask(b, "A sample")
    wide = """
        const apart = 'pre, .table, #drawer, .hidden, .skip, .sprites, header *, option';
        return [...document.querySelectorAll('body *')].filter((e) => {
            const box = e.getBoundingClientRect();
            return box.width > 0 && (box.left < 0 || box.right > 360) && !e.closest(apart);
        }).map((e) => e.outerHTML.slice(0, 80))"""
    equal(b.run(wide), [], "too wide in the conversation")
    equal(b.run("return document.documentElement.scrollWidth"), 360, "the page's width")
    b.picture(p.pictures / "narrow.png")
    b.click("#settings-open")
    equal(b.run(wide), [], "too wide in the settings")
    b.press("escape")
    b.click("#drawer-toggle")
    b.picture(p.pictures / "narrow-list.png")
    b.press("escape")
    true(b.run("return document.querySelector('#drawer').inert"), "Escape does not close the list")
    b = start(p, width=360, height=700)
    b.click("#view-transcribe")
    equal(b.run(wide), [], "too wide in the transcriptions")
    equal(b.run("return [...document.querySelectorAll('header > *')].filter((e) =>"
                " e.getBoundingClientRect().right > 360).length"), 0, "outside of the page")
    b.picture(p.pictures / "narrow-transcribe.png")


CONTRAST = """
    const probe = document.createElement('span');
    document.body.append(probe);
    const of = (name) => {
        probe.className = '';
        const v = getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
        const c = [1, 3, 5].map((i) => parseInt(v.slice(i, i + 2), 16) / 255)
            .map((x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
        return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
    };
    const ratio = (a, b) => (Math.max(of(a), of(b)) + 0.05) / (Math.min(of(a), of(b)) + 0.05);
    const pairs = [['text', 'paper'], ['text', 'raised'], ['text', 'bubble'], ['soft', 'paper'],
        ['soft', 'side'], ['soft', 'bubble'], ['soft', 'code'], ['soft', 'raised'],
        ['accent', 'paper'], ['accent', 'side'], ['accent', 'bubble'], ['accent', 'accent-soft'],
        ['on-accent', 'accent'], ['bad', 'bad-soft']];
    probe.remove();
    return pairs.map(([a, b]) => [a + ' on ' + b, ratio(a, b)]).filter((r) => r[1] < 4.5)"""
PAPER = "return getComputedStyle(document.body).backgroundColor"


def colours_follow_the_system_and_the_button(p):
    b = start(p)
    light = b.run(PAPER)
    equal(b.run(CONTRAST), [], "light colours that are hard to read")
    b.emulate(1200, 800, dark=True)
    b.wait("return document.documentElement.dataset.theme === 'dark'", "the system's dark colours")
    true(b.run(PAPER) != light, "the dark page is light")
    equal(b.run(CONTRAST), [], "dark colours that are hard to read")
    b.run("document.querySelector('#theme').focus()")
    b.press("enter")
    equal(b.run(PAPER), light, "the page after choosing light")
    again(b)
    equal(b.run(PAPER), light, "the page after a reload")
    b.emulate(1200, 800)


def the_programs_own_thoughts_are_folded(p):
    b = start(p, model="talker")
    for thinking, places in (("on", [1, 0]), ("off", [0, 1])):
        settle(b, max_tokens=60, temperature=0, thinking=thinking)
        choose(b, "talker")
        ask(b, "Tell me of a ship")
        equal(b.run("return [document.querySelectorAll('.thought').length,"
                    " document.querySelectorAll('.answer > .md').length]"), places,
              "thoughts and answers with thinking " + thinking)
    no_errors(b)


def a_chosen_model_is_kept(p):
    b = start(p)
    for name in ("talker", "demo"):
        choose(b, name)
        again(b)
        equal(b.run("return document.querySelector('#model').value"), name, "the model after a reload")
    no_errors(b)


def a_model_without_a_template_goes_on_with_a_text(p):
    b = start(p, model="demo")
    settle(b, max_tokens=12, temperature=0)
    choose(b, "demo")
    equal(b.run("return document.querySelector('#empty-title').textContent"), "Begin a text", "title")
    ask(b, "The ship was")
    equal(note(b), "The limit of tokens was reached.", "the note")
    true(len(last_answer(b)) > 10, "no text")
    no_errors(b)


def drop(b, path, name):
    data = base64.b64encode(pathlib.Path(path).read_bytes()).decode()
    b.run("""
        const bytes = Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0));
        const data = new DataTransfer();
        data.items.add(new File([bytes], arguments[1], {type: 'audio/wav'}));
        for (const kind of ['dragenter', 'dragover', 'drop'])
            document.body.dispatchEvent(new DragEvent(kind,
                {dataTransfer: data, bubbles: true, cancelable: true}))""", data, name)


def downloaded(b, name):
    path = pathlib.Path(b.folder) / name
    end = time.time() + 10
    while time.time() < end and not path.exists():
        time.sleep(0.1)
    return path.read_text()


def a_dropped_recording_becomes_text_and_subtitles(p):
    b = start(p)
    drop(b, p.work / "spoken.wav", "spoken.wav")
    b.wait("return document.querySelector('.card-acts') || document.querySelector('.card .error')",
           "a transcription", 60)
    text = b.run("return document.querySelector('.card .card-body').innerText")
    for _, said in clips(range(3)):
        true(said in text, "%r is not in %r" % (said, text))
    for kind in ("srt", "vtt", "txt"):
        b.click(".card button[aria-label='Download spoken.%s']" % kind)
    srt = downloaded(b, "spoken.srt")
    true(re.match(r"1\n\d\d:\d\d:\d\d,\d{3} --> \d\d:\d\d:\d\d,\d{3}\n\S", srt), "srt: " + srt)
    vtt = downloaded(b, "spoken.vtt")
    true(re.match(r"WEBVTT\n\n\d\d:\d\d:\d\d\.\d{3} --> \d\d:\d\d:\d\d\.\d{3}\n\S", vtt), "vtt: " + vtt)
    b.picture(p.pictures / "transcription.png")
    b.run("window.live = new Set(); new MutationObserver(() => {"
          "const t = document.querySelector('.card .partial');"
          "if (t) window.live.add(t.textContent.length); })"
          ".observe(document.querySelector('#transcripts'), {subtree: true, childList: true})")
    drop(b, p.work / "minutes.wav", "minutes.wav")
    b.wait("return document.querySelectorAll('.card-acts').length === 2", "a longer one", 60)
    true(b.run("return window.live.size") > 3, "the words came all at once")
    equal(b.run("return document.querySelectorAll('.card .segments')[0].children.length"), 60, "lines")
    drop(b, __file__, "no-sound.wav")
    b.wait("return document.querySelector('.card .error')", "words for a file without sound", 30)
    b.run("document.querySelector('.card button[aria-label^=Remove]').click()")
    equal(b.run("return document.querySelectorAll('.card').length"), 2, "cards after removing one")


def spoken_words_come_dimmed_and_then_stay(p):
    b = start(p, model="talker")
    true(not b.run("return document.querySelector('#dictate').hidden"), "no microphone button")
    b.run("window.partials = 0; new MutationObserver(() => {"
          "if (document.querySelector('#mirror .partial')) window.partials++; })"
          ".observe(document.querySelector('#mirror'), {subtree: true, childList: true})")
    b.click("#dictate")
    b.wait("return document.querySelector('#dictate').classList.contains('on')", "listening")
    first = clips([0])[0][1]
    b.wait("return document.querySelector('#mirror').textContent.includes('%s')" % first,
           "the first words", 30)
    b.picture(p.pictures / "dictation.png")
    time.sleep(4)
    b.press("escape")
    b.wait("return !document.querySelector('#question').readOnly", "the end of dictation", 30)
    text = b.run("return document.querySelector('#question').value")
    for _, said in clips(range(3)):
        true(said in text, "%r is not in %r" % (said, text))
    true(b.run("return window.partials") > 0, "no partial words were shown")
    equal(b.run("return document.activeElement.id"), "question", "the focus afterwards")
    no_errors(b)


def speech_becomes_a_card_of_its_own(p):
    b = start(p)
    b.click("#view-transcribe")
    b.click("#speak")
    first = clips([0])[0][1]
    b.wait("const t = document.querySelector('.card .spoken');"
           "return t && t.textContent.includes('%s')" % first, "the first words", 30)
    b.click("#speak")
    b.wait("return document.querySelector('.card-acts')", "the card", 30)
    true(first in b.run("return document.querySelector('.card .spoken').textContent"), "the card's text")
    equal(b.run("return document.querySelector('#speak').innerText.trim()"), "Speak", "the button")
    no_errors(b)


def a_key_is_asked_for_and_kept(p):
    keys = p.work / "keys"
    keys.write_text("first-key\n")
    url, program = p.serve("demo", "demo-speech", "--api-key-file", str(keys))
    b = p.browser
    b.emulate(1200, 800)
    b.open(url.replace("http://", "http://x:first-key@"))
    b.wait("return document.querySelector('#model').value || null", "the model list")
    keys.write_text("second-key\n")
    program.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    # The browser adds the old password, which it remembers, to both.
    for key, wanted in (("second-key", "open"), ("wrong-key", "close")):
        got = b.session("POST", "/execute/async", {"args": [key], "script": """
            const done = arguments[1];
            const to = location.origin.replace('http', 'ws') + '/v1/realtime?intent=transcription';
            const w = new WebSocket(to, ['realtime', 'openai-insecure-api-key.' + arguments[0]]);
            w.onopen = () => done('open');
            w.onclose = () => done('close')"""})
        equal(got, wanted, "a WebSocket with " + key)
    ask(b, "Who is there?", wait=False)
    b.wait("return document.querySelector('#key').open", "the question for a key")
    b.picture(p.pictures / "key.png")
    b.write("wrong-key")
    b.press("enter")
    b.wait("return document.querySelector('#key').open && "
           "document.querySelector('#key-text').textContent.includes('not one of')", "a second question")
    b.write("second-key")
    b.press("enter")
    b.wait(IDLE, "the end", 30)
    true("key" not in note(b), "the note: " + note(b))
    equal(b.run("return sessionStorage.getItem('reel/key')"), "second-key", "the key that is kept")
    equal(b.run("return JSON.stringify(localStorage).includes('second-key')"), False, "kept for good")


# ---- against the stub ---------------------------------------------------------------------------

def thinking_is_folded_and_timed(p):
    b = start(p, url=p.stub.url)
    ask(b, "think", wait=False)
    b.wait("return document.querySelector('.thought.busy')", "a thought")
    true(b.run("return document.querySelector('.thought-label').textContent").startswith("Thinking"),
         "the label while thinking")
    equal(b.run("return document.querySelector('.thought .md').childNodes.length"), 0,
          "blocks of a folded thought")
    b.wait(IDLE, "the end", 60)
    true(re.fullmatch(r"Thought for [\d.]+ (ms|seconds?)",
                      b.run("return document.querySelector('.thought-label').textContent")), "the label")
    true(not b.run("return document.querySelector('.thought').open"), "the thought is not folded")
    b.picture(p.pictures / "folded.png")
    b.run("document.querySelector('.thought summary').focus()")
    b.press("enter")
    b.wait("return document.querySelector('.thought .md').textContent.includes('Let me think')",
           "the thought")
    b.run("document.querySelector('#scroll').scrollTop = 0")
    b.picture(p.pictures / "light.png")
    b.emulate(1200, 800, dark=True)
    b.picture(p.pictures / "dark.png")
    b.emulate(1200, 800)
    b.click("#new")
    ask(b, "next")
    equal(len(p.stub.requests[-1]["messages"]), 1, "messages of a new conversation")
    no_errors(b)


def hostile_text_stays_text(p):
    b = start(p, url=p.stub.url)
    ask(b, "hostile")
    equal(b.run("return window.pwned === undefined"), True, "a script ran")
    equal(b.run("return document.querySelectorAll('.md script, .md img, .md iframe, .md style,"
                " .md details').length"), 0, "elements out of the text")
    links = b.run("return [...document.querySelectorAll('.md a')].map((a) => [a.protocol, a.rel])")
    true(len(links) >= 2, "no link at all: " + str(links))
    for protocol, rel in links:
        true(protocol in ("http:", "https:") and "noopener" in rel, "a link %s %s" % (protocol, rel))
    true("<script>window.pwned=1</script>" in last_answer(b), "the text is not shown")
    no_errors(b)


GROWN = """
    const done = arguments[arguments.length - 1], sample = arguments[0], hostile = arguments[1];
    import('/page/markdown.js').then(({ Markdown }) => {
        const whole = (t) => {
            const d = document.createElement('div');
            new Markdown(d).update(t, true);
            return d.innerHTML;
        };
        const differ = [];
        for (const step of [1, 3, 7, 50]) {
            const d = document.createElement('div'), m = new Markdown(d);
            for (let i = step; i < sample.length; i += step) m.update(sample.slice(0, i), false);
            m.update(sample, true);
            if (d.innerHTML !== whole(sample)) differ.push(step);
        }
        const slow = [];
        for (const text of hostile) {
            const start = performance.now();
            whole(text);
            if (performance.now() - start > 3000) slow.push(text.slice(0, 20));
        }
        const d = document.createElement('div');
        new Markdown(d).update(arguments[0] || sample, true);
        done([differ, slow, whole('a **b** `c` [d](https://e.example/) ~~f~~ *g*\\n\\n1. h\\n2. i')]);
    }).catch((e) => done(String(e)))"""


def text_that_grows_looks_like_text_that_came_whole(p):
    b = start(p, url=p.stub.url)
    n = 30000
    hostile = ["*" * n, "[" * n, "[a](" * n, "<" * n, " ".join("`" * i for i in range(300)), ">" * n,
               "- " * n, "http://" * n, " " * n + "x|-\n-|-" + " " * n + "x", "*a _b " * n,
               "**a " * n + "** " * n, "~~a" * n, "```" + " " * n + "`", "|a" * n + "\n" + "|-" * n,
               "# " + " #" * n, "<br" * n, "\n".join("  " * i + "- x" for i in range(300))]
    b.session("POST", "/timeouts", {"script": 60000})
    answer = b.session("POST", "/execute/async", {"script": GROWN, "args": [SAMPLE + HOSTILE, hostile]})
    equal(answer[0], [], "steps whose blocks differ")
    equal(answer[1], [], "texts that cost too much")
    equal(answer[2], '<p>a <strong>b</strong> <code>c</code> <a href="https://e.example/" '
          'title="https://e.example/" target="_blank" rel="noopener noreferrer nofollow">d</a> '
          '<del>f</del> <em>g</em></p><ol><li>h</li><li>i</li></ol>', "Markdown")


HEARD = """
    const [rate, pitch, done] = arguments;
    const context = new OfflineAudioContext(1, rate, rate);
    context.audioWorklet.addModule('/page/worklet.js').then(async () => {
        const tone = new OscillatorNode(context, { frequency: pitch });
        const node = new AudioWorkletNode(context, 'microphone');
        const heard = [];
        let ended = () => {};
        node.port.onmessage = (e) => e.data.ended ? ended() : heard.push(...new Int16Array(e.data.pcm));
        tone.connect(node).connect(context.destination);
        tone.start();
        await context.startRendering();
        await new Promise((r) => setTimeout(r, 100));
        const part = heard.slice(4800, 19200);
        let re = 0, im = 0, all = 0;
        part.forEach((x, i) => {
            re += x * Math.cos(2 * Math.PI * pitch * i / 24000);
            im += x * Math.sin(2 * Math.PI * pitch * i / 24000);
            all += x * x;
        });
        const n = part.length;
        done([heard.length, 2 * Math.hypot(re, im) / n / 32767, Math.sqrt(all / n) / 32767]);
    }).catch((e) => done(String(e)))"""


def the_microphone_is_resampled_cleanly(p):
    b = start(p, url=p.stub.url)
    for rate in (48000, 44100, 16000, 24000):
        samples, amplitude, _ = b.session("POST", "/execute/async", {"script": HEARD, "args": [rate, 1000]})
        true(23000 <= samples <= 24000, "%d samples of a second at %d Hz" % (samples, rate))
        true(abs(amplitude - 1) < 0.01, "a tone of 1 kHz at %d Hz: %.3f" % (rate, amplitude))
    for rate in (48000, 44100):
        _, _, loudness = b.session("POST", "/execute/async", {"script": HEARD, "args": [rate, 15000]})
        true(loudness < 0.003, "15 kHz at %d Hz folds back: %.4f" % (rate, loudness))


def what_goes_wrong_is_said(p):
    b = start(p, url=p.stub.url)
    ask(b, "fail")
    equal(note(b), "The engine failed.", "an error inside the stream")
    true("word" in last_answer(b), "what came before the error is lost")
    ask(b, "break")
    equal(note(b), "The connection ended before the answer did.", "a stream that breaks")
    b.errors()
    ask(b, "refuse")
    equal(note(b), "Temperature is 9, at most 2 is allowed.", "a refusal")
    ask(b, "tool")
    true("call of look" in b.run("return document.querySelector('.tools').textContent"), "a tool's call")
    true('{"at": 1}' in b.run("return document.querySelector('.tools').textContent"), "its arguments")


def a_loading_model_is_waited_for(p):
    b = start(p, url=p.stub.url)
    p.stub.loading_until = time.time() + 2.5
    ask(b, "Are you there?", wait=False)
    b.wait("return document.querySelector('.pace').textContent.includes('loading')", "the word loading")
    b.wait(IDLE, "an answer", 20)
    true(last_answer(b), "no answer after loading")
    p.stub.loading_until = time.time() + 2.5
    b.open(p.stub.url)
    b.wait("return !document.querySelector('#notice').hidden && "
           "document.querySelector('#notice').textContent.includes('loading')", "a notice")
    b.wait("return document.querySelector('#model').value === 'stub' && "
           "document.querySelector('#notice').hidden", "the model", 20)


def a_lost_server_is_said_and_found_again(p):
    stub = Stub()
    port = stub.server_address[1]
    b = start(p, url=stub.url)
    stub.end()
    ask(b, "Anybody?")
    equal(note(b), "The server cannot be reached.", "the note")
    b.run("window.dispatchEvent(new Event('online'))")
    b.wait("return !document.querySelector('#notice').hidden", "a notice")
    stub = Stub(port)
    b.wait("return document.querySelector('#notice').hidden", "the server again", 20)
    stub.end()


def leaving_an_answer_ends_it(p):
    b = start(p, url=p.stub.url)
    before = p.stub.left
    ask(b, "slow", wait=False)
    b.wait("return document.querySelector('.answer .md')", "words")
    b.click("#new")
    b.wait(IDLE, "the end")
    end = time.time() + 10
    while p.stub.left == before and time.time() < end:
        time.sleep(0.1)
    true(p.stub.left > before, "the server goes on for nobody")


def six_thousand_tokens_a_second_leave_the_page_quick(p):
    b = start(p, url=p.stub.url)
    b.run("""
        window.gaps = [];
        let last = performance.now();
        const frame = () => {
            const now = performance.now();
            window.gaps.push(now - last);
            last = now;
            requestAnimationFrame(frame);
        };
        requestAnimationFrame(frame)""")
    ask(b, "long")
    gaps = sorted(b.run("return window.gaps"))
    true(gaps[int(len(gaps) * 0.9)] < 100, "frames apart: %s ms" % gaps[-20:])
    wanted = SAMPLE * 30
    equal(last_answer(b).count("Demagnetise"), wanted.count("Demagnetise"), "parts of the text")
    no_errors(b)


def a_full_storage_is_said(p):
    b = start(p, url=p.stub.url)
    b.run("Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError'); }")
    ask(b, "next")
    true("storage is full" in b.run("return document.querySelector('#notice').textContent"), "no notice")
    true(last_answer(b), "no answer")


TESTS = [
    the_page_loads_and_lists_the_models,
    files_come_once_and_with_their_policy,
    an_answer_streams_with_its_pace,
    escape_stops_and_the_server_is_free_again,
    an_answer_is_made_anew_and_a_question_edited,
    settings_reach_the_server,
    conversations_are_kept_and_deleted,
    a_keyboard_reaches_everything,
    everything_has_a_name,
    a_page_of_360_pixels_does_not_scroll_sideways,
    colours_follow_the_system_and_the_button,
    a_chosen_model_is_kept,
    the_programs_own_thoughts_are_folded,
    a_model_without_a_template_goes_on_with_a_text,
    a_dropped_recording_becomes_text_and_subtitles,
    spoken_words_come_dimmed_and_then_stay,
    speech_becomes_a_card_of_its_own,
    a_key_is_asked_for_and_kept,
    thinking_is_folded_and_timed,
    hostile_text_stays_text,
    text_that_grows_looks_like_text_that_came_whole,
    the_microphone_is_resampled_cleanly,
    what_goes_wrong_is_said,
    a_loading_model_is_waited_for,
    a_lost_server_is_said_and_found_again,
    leaving_an_answer_ends_it,
    six_thousand_tokens_a_second_leave_the_page_quick,
    a_full_storage_is_said,
]


def main():
    if missing():
        print("SKIP the page's tests: there is no %s here" % missing())
        return 0
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    words = sys.argv[3:]
    failed = 0
    place = Place(sys.argv[1], sys.argv[2])
    try:
        for test in TESTS:
            name = test.__name__.replace("_", " ")
            if words and not any(w in test.__name__ for w in words):
                continue
            begin = time.time()
            try:
                test(place)
                print("ok   %s (%.1f s)" % (name, time.time() - begin), flush=True)
            except Exception as e:
                failed += 1
                place.browser.picture(place.pictures / ("failed-%s.png" % test.__name__))
                print("FAIL %s: %s" % (name, e), flush=True)
                if not isinstance(e, AssertionError):
                    traceback.print_exc()
    finally:
        place.close()
    return 1 if failed or place.failed else 0


if __name__ == "__main__":
    sys.exit(main())
