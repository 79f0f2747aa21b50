"""Recordings, files and streams through the small speech model."""
import asyncio
import json
import pickle
import threading
import time
import unittest
import wave
from tempfile import TemporaryDirectory

import numpy as np

import support
from support import command, reel


class Speech(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = reel.Model("demo-speech", "cpu")
        cls.clips = support.spoken()[:4]

    @classmethod
    def tearDownClass(cls):
        cls.model.close()

    def test_arrays_of_every_type_and_rate_are_understood(self):
        samples, said = self.clips[0]
        with self.model.transcriber() as transcriber:
            forms = [samples, samples.astype(np.float64), (samples * 32767).astype(np.int16),
                     (samples.astype(np.float64) * (2**31 - 129)).astype(np.int32),
                     np.stack([samples, samples], axis=1)]
            for form in forms:
                self.assertEqual(transcriber.transcribe(form).text, said)
            twice = np.interp(np.arange(2 * len(samples)) / 2, np.arange(len(samples)), samples)
            made = transcriber.transcribe(twice, 32000)
            self.assertEqual(made.text, said)
            self.assertAlmostEqual(made.seconds, len(samples) / 16000, delta=0.0002)  # to the last sample
            for wrong, word in [(np.zeros((2, 2, 2)), "2, 2, 2"), (np.zeros(3, complex), "complex")]:
                with self.assertRaisesRegex(reel.ArgumentError, word):
                    transcriber.transcribe(wrong)
            with self.assertRaisesRegex(reel.ArgumentError, "8000"):
                transcriber.transcribe(samples, 12345)
            self.assertEqual(transcriber.transcribe(samples).text, said)

    def test_files_come_out_as_by_the_command(self):
        samples, said = self.clips[1]
        with TemporaryDirectory() as folder, self.model.transcriber() as transcriber:
            path = folder + "/said.wav"
            with wave.open(path, "wb") as file:
                file.setnchannels(1), file.setsampwidth(2), file.setframerate(16000)
                file.writeframes((samples * 32767).astype("<i2").tobytes())
            made = transcriber.transcribe(path)
            self.assertEqual(made.text, said)
            with open(path, "rb") as file:
                self.assertEqual(transcriber.transcribe(file.read()).text, said)
            np.testing.assert_allclose(reel.load_audio(path), samples, atol=1e-4)
            for form, text in [("srt", made.srt()), ("vtt", made.vtt())]:
                done = command("transcribe", "-m", "demo-speech", "--device", "cpu", "--format", form, path)
                self.assertEqual(done.stdout, text, done.stderr)
            with self.assertRaisesRegex(reel.NotFoundError, "nowhere.wav"):
                transcriber.transcribe(folder + "/nowhere.wav")
            with self.assertRaises(reel.LimitError):
                transcriber.transcribe(path, most_seconds=0.1)

    def test_a_transcript_is_plain_data(self):
        samples, said = self.clips[0]
        with self.model.transcriber() as transcriber:
            made = transcriber.transcribe(samples)
        self.assertEqual(made.segments[0].text, said)
        self.assertEqual(made.language, "English")
        self.assertAlmostEqual(made.seconds, len(samples) / 16000, delta=0.001)
        again = pickle.loads(pickle.dumps(made))
        self.assertEqual(json.loads(again.json())["text"], said)
        self.assertEqual(json.loads(again.json(verbose=False)), {"text": said})
        self.assertTrue(again.vtt().startswith("WEBVTT"))

    def test_a_stream_is_what_the_whole_is(self):
        samples, said = self.clips[0]
        told = []
        with self.model.transcriber(stream_seconds=0.5, on_text=lambda t, s: told.append(t)) as transcriber:
            whole = transcriber.transcribe(samples).text
            self.assertEqual("".join(told), whole)
            chunks = [samples[i: i + 800] for i in range(0, len(samples), 800)]
            heard = list(transcriber.stream(chunks))
            self.assertEqual("".join(one.text for one in heard), whole)
            for chunk in chunks:
                transcriber.push(chunk)
            self.assertTrue(transcriber.partial or transcriber.text)
            self.assertEqual(transcriber.finish().text, whole)
            self.assertEqual(transcriber.partial, "")

            async def live():
                async def arriving():
                    for chunk in chunks:
                        yield chunk

                return [one async for one in transcriber.astream(arriving())]

            self.assertEqual("".join(one.text for one in asyncio.run(live())), whole)

    def test_callbacks_may_end_it_and_may_fail(self):
        samples, _ = self.clips[0]
        with self.model.transcriber(on_text=lambda *_: False) as transcriber:
            with self.assertRaises(reel.Cancelled):
                transcriber.transcribe(samples)

        def fails(*_):
            raise KeyError("from the callback")

        with self.model.transcriber(on_text=fails) as transcriber:
            for _ in range(2):
                with self.assertRaisesRegex(KeyError, "from the callback"):
                    transcriber.transcribe(samples)

    def test_closing_and_cancelling_end_what_runs(self):
        long = np.tile(np.concatenate([clip[0] for clip in self.clips]), 300)

        async def cancelled():
            with reel.Transcriber("demo-speech", device="cpu") as transcriber:
                task = asyncio.create_task(transcriber.atranscribe(long))
                await asyncio.sleep(0.2)
                began = time.monotonic()
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                ended = time.monotonic() - began
                return ended, (await transcriber.atranscribe(self.clips[0][0])).text

        ended, text = asyncio.run(cancelled())
        self.assertLess(ended, 6)
        self.assertEqual(text, self.clips[0][1])
        caught = []

        def run():
            try:
                transcriber.transcribe(long)
            except reel.ReelError as error:
                caught.append(error)

        model = reel.Model("demo-speech", "cpu")
        transcriber = model.transcriber()
        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.2)
        with self.assertRaisesRegex(reel.StateError, "another thread"):
            transcriber.push(long)
        model.close()
        thread.join(10)
        self.assertFalse(thread.is_alive())
        self.assertEqual(len(caught), 1)
        self.assertTrue(transcriber.closed)

    def test_a_resampler_gives_the_same_however_it_is_cut(self):
        samples = np.sin(np.arange(48000) / 20).astype(np.float32)

        def through(sizes):
            resampler, parts, at = reel.Resampler(48000), [], 0
            while at < len(samples):
                parts.append(resampler.run(samples[at: at + sizes]))
                at += sizes
            return np.concatenate(parts + [resampler.finish()])

        whole = through(48000)
        self.assertAlmostEqual(len(whole), 16000, delta=64)
        np.testing.assert_array_equal(through(977), whole)

    def test_a_text_model_does_not_hear(self):
        with support.demo() as model, self.assertRaises(reel.UnsupportedError):
            model.transcriber()
        with self.assertRaisesRegex(TypeError, "device"):
            reel.Transcriber(self.model, device="cpu")


if __name__ == "__main__":
    unittest.main()
