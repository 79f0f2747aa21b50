#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizers/goldens.bin.xz: strings, and what Hugging Face `tokenizers` makes
of them with each fixture's tokenizer.json. The same bytes every time.

    pip install tokenizers
    tools/make_tokenizer_goldens.py

Little-endian: "RTOKGOLD", u32 number of strings, u32 length of each, their UTF-8; then per tokenizer
(in the order of FAMILIES) u32 hash of the ids of each string and u64 hash of the bytes of all ids;
then u32 number of decodings, and of each u16 bytes, u16 bytes of text, the bytes, and what Python's
decode("utf-8", "replace") makes of them. Hashes are FNV-1a: over ids as 4 bytes each; over the
tokens' bytes each preceded by its length as 4 bytes.
"""
import itertools
import json
import lzma
import os
import random
import struct
import sys

import tokenizers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "fixtures", "tokenizers")
FAMILIES = ["qwen3", "smollm2", "qwen3.5"]

SPACES = [" ", "  ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1f", "\x85", "\xa0", "\u1680",
          "\u180e", "\u2000", "\u2003", "\u2009", "\u200a", "\u200b", "\u2028", "\u2029", "\u202f",
          "\u205f", "\u2060", "\u3000", "\ufeff"]
DIGITS = list("0123456789") + list("٠٣٩०५๑๗〇一三²³¹½¾Ⅷⅻ①⑳㊿𝟘𝟡𐒠𑁦🄌")
MARKS = list("\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0311\u031b\u0323"
             "\u0324\u0325\u0327\u0328\u032d\u0331\u0334\u0338\u0340\u0341\u0342\u0343\u0344\u0345"
             "\u035c\u0360\u0483\u0591\u05b0\u05bc\u05bf\u05c1\u064b\u0651\u0653\u0654\u0655\u0670"
             "\u093c\u094d\u09bc\u09be\u09d7\u0b3e\u0b56\u0b57\u0bbe\u0bd7\u0c56\u0cc2\u0cd5\u0cd6"
             "\u0d3e\u0d57\u0dca\u0dcf\u0ddf\u0e31\u0e34\u0e38\u0e48\u0eb1\u0f71\u0f72\u0f73\u0f74"
             "\u0f75\u0f80\u0f81\u102e\u1161\u1175\u11a8\u11c2\u1b35\u1dca\u1dfa\u20d0\u302a\u3099"
             "\u309a\ua66f\ufb1e\ufe20\U0001103e\U00011127\U00011357\U000114ba\U000115af\U00011930"
             "\U0001d165\U0001d16d\U0001e944")
BASES = list("aeiouAEIOUncszdlrtyKQ\u00e5\u00c5\u212b\u00c7\u015b\u1e9b\u1ea1\u01d5\u0391\u03c9\u1f00"
             "\u1fc1\u0413\u0438\u0450\u05d0\u05e9\ufb2a\ufb2c\u0627\u0915\u0958\u09a1\u09dc\u0b92"
             "\u0dd9\u0e01\u0f40\u0f69\u1025\u1100\u1112\uac00\uac01\u304b\u30cf\uff76\u2126\u2260"
             "\u2adc\uf900\U00011099\U00011131\U0001d157\U0001d15e\U0001d160\U0002f800")
EMOJI = ["😀", "😊", "👍", "👍🏽", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇺🇳", "1️⃣", "#️⃣", "❤️", "☃", "🫠", "🪿", "🧑🏿‍🚀", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "©", "™️",
         "♾", "🀄", "🃏", "\u200d", "\ufe0f", "\U0001f3fb"]
SENTENCES = """It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.
"My dear Mr. Bennet," said his lady to him one day, "have you heard that Netherfield Park is let at last?"
I'd've thought they'll say we're wrong; you've DON'T and I'M sure he'd'nt o'clock rock'n'roll.
Die Würde des Menschen ist unantastbar. Größenwahn, Straße, ÄÖÜ äöü ß.
L'été où j'étais là-bas, ça coûtait très cher — « n'est-ce pas ? »
El niño comió piñas en Perú; ¿cómo estás? ¡Muy bien!
Não há razão para preocupação, irmã.
Łódź, źdźbło, gżegżółka i zażółć gęślą jaźń.
Příliš žluťoučký kůň úpěl ďábelské ódy.
Árvíztűrő tükörfúrógép.
İstanbul'da ığdır, şöyle çığlık attı.
Sævör grét áðan því úlpan var ónýt.
Vše, dẫu rằng tiếng Việt có nhiều dấu thanh điệu khác nhau.
Все счастливые семьи похожи друг на друга, ёлка и подъезд.
Всі люди народжуються вільними і рівними, їжак ґанок.
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι· ᾧ ἐστι.
Բոլոր մարդիկ ծնվում են ազատ։
ყველა ადამიანი იბადება თავისუფალი.
כל בני האדם נולדו בני חורין; שָׁלוֹם עֲלֵיכֶם.
يولد جميع الناس أحرارا، بِسْمِ ٱللَّهِ الرَّحْمَٰنِ ١٢٣.
تمام انسان آزاد پیدا ہوئے ہیں۔ می‌خواهم بروم ۴۵۶
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता १२३ क़लम।
সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা নিয়ে জন্মগ্রহণ করে।
ਸਾਰਾ ਮਨੁੱਖੀ ਪਰਿਵਾਰ ਆਪਣੀ ਮਹਿਮਾ।
மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.
ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులు.
ಎಲ್ಲಾ ಮಾನವರೂ ಸ್ವತಂತ್ರರಾಗಿಯೇ ಜನಿಸಿದ್ದಾರೆ.
മനുഷ്യരെല്ലാവരും തുല്യാവകാശങ്ങളോടെ ജനിച്ചവരാണ്.
සියලු මනුෂ්‍යයෝ නිදහස්ව උපත ලබා ඇත.
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน ปีที่แล้ว ๑๒๓ น้ำ
ມະນຸດທຸກຄົນເກີດມາມີສິດເສລີພາບ
လူတိုင်းသည် တူညီ လွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့်
មនុស្សទាំងអស់កើតមកមានសេរីភាព
འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས
ሰው ሁሉ ነጻና እኩል ክብር ያለው ሆኖ ተወልዷል።
生活的真谛是什么？人人生而自由，在尊严和权利上一律平等。
床前明月光，疑是地上霜。舉頭望明月，低頭思故鄉。
すべての人間は、生まれながらにして自由であり、ガギグゲゴﾊﾞﾋﾟです。
모든 인간은 태어날 때부터 자유로우며, 그 존엄과 권리에 있어 동등하다.
각 한국 (자모)
ᏂᎦᏓ ᎠᏂᏴᏫ ᏂᎨᎫᏓᎸᎾ ᎠᎴ ᎤᏂᏠᏱ
ᓄᓇᑦᓯᐊᖅ ᐃᓅᔪᓕᒫᑦ
ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ
𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝓣𝓮𝔁𝓽 𝟙𝟚𝟛 ∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, ∑ᵢ αᵢ² ≤ ∞ ≠ ≮
H₂O, E=mc², 5€ £7 ¥9 ₹3 50% ‰ №1 §4 ¶ † … “quotes” ‘single’ –—―
https://example.com/a/b?q=1&r=%20x#frag user.name+tag@mail.example.org C:\\Users\\x
2024-12-31T23:59:59.999Z 1,234,567.89 +49 (30) 901820 0xDEADBEEF 1e-9 v1.2.3-rc4""".split("\n")
CODE = """#include <stdio.h>\n\nint main(void) {\n\tprintf("%d\\n", 42);\n\treturn 0;\n}\n
def f(x, *, y=None):\n    \"\"\"Doc.\"\"\"\n    return [i ** 2 for i in range(x) if i % 2 == 0]\n
fn main() -> Result<(), Box<dyn Error>> { let v: Vec<u8> = vec![1, 2, 3]; Ok(()) }
SELECT a.id, COUNT(*) FROM t AS a LEFT JOIN u ON a.id = u.id WHERE x <> 'y''s' GROUP BY 1;
<div class="a b" id='c'>\r\n  <p>&nbsp;&lt;</p>\r\n</div>\r\n<!-- x -->
{"key": [1, -2.5e10, true, null], "s": "a\\u00e9\\n"}
const f = async (x) => { await g?.(x ?? `t${x}`); } // !== === =>
for i in $(seq 1 10); do echo "$i" >> "${HOME}/x.txt" 2>&1 || exit $?; done
\\begin{equation} \\frac{\\partial f}{\\partial x_{i}} = \\sum_{j} a_{ij} \\end{equation}
| a | b |\n|---|:-:|\n| 1 | *x* |\n\n## Title\n\n- item\n  - sub\n\n```py\nx\n```\n
@@ -1,7 +1,9 @@\n-old\n+new\n context\n\t\t\tdeep\n
if(a&&b||!c){x+=1;y--;z<<=2;w=a?b:c;}/* c */"""
CODE = [line for line in CODE.split("\n") if line]


def fragments(rnd, text):
    start = rnd.randrange(len(text))
    return text[start : start + rnd.randrange(1, 40)]


def mixed(rnd, pools, most):
    return "".join(rnd.choice(rnd.choice(pools)) for _ in range(rnd.randrange(1, most)))


def any_code_point(rnd):
    plane = rnd.choice([0, 0, 0, 0, 1, 1, 2, 3, 14, 15, 16])
    while True:
        c = plane * 0x10000 + rnd.randrange(0x10000)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def all_code_points():
    """Every code point of the planes that have characters, in their order, and samples of the rest."""
    blocks = itertools.chain(range(0, 0x32000, 48), range(0xE0000, 0xE0200, 48), range(0xF0000, 0x110000, 0xFFF))
    for start in blocks:
        yield "".join(chr(c) for c in range(start, min(start + 48, 0x110000)) if not 0xD800 <= c < 0xE000)


def added_strings(rnd, added):
    for token in added:
        yield from (token, token + token, " " + token, token + " ", "\n" + token + "\n", "a" + token + "b",
                    token[:-1], token[1:], token[:-1] + " " + token[-1], token.upper(), "<" + token, token + ">",
                    token + "\u0301", token.replace("<", "<<"), token[:3] + token, "'" + token + "s 1" + token + "2")
    for _ in range(1600):
        yield mixed(rnd, [added, added, [" ", "\n", "a", "é", "5", "<", "|", ">", "<|", "|>", "</", "_"], SENTENCES[:2]], 8)


def strings(added):
    rnd = random.Random("reel tokenizer goldens 1")
    letters = list("abcdefgxyzABCXYZéßñøжЖλΩאبकกあ漢한ｱǅ") + ["the", "ing", "ſ", "ı", "İ", "K", "ª", "ﬁ"]
    marks = list(".,;:!?'\"()[]{}<>|/\\@#$%^&*-_=+~`«»“”…、。¿§")
    tails = ["'s", "'S", "'t", "'re", "'RE", "'ve", "'m", "'ll", "'LL", "'d", "'ſ", "'l", "'x", "’s", "''s", "'"]
    yield ""
    yield from all_code_points()
    yield from added_strings(rnd, added)
    yield from SENTENCES
    yield from CODE
    yield "\n".join(SENTENCES)
    yield "\n".join(CODE)
    for _ in range(10000):
        yield mixed(rnd, [letters, letters, SPACES, marks, DIGITS, tails], 12)
    for _ in range(7500):
        yield mixed(rnd, [SPACES, SPACES, SPACES, letters, marks], 9)
    for _ in range(4000):
        yield mixed(rnd, [DIGITS, DIGITS, list(".,- +xeE%"), SPACES], 10)
    for _ in range(3000):
        yield mixed(rnd, [letters, tails, tails, [" ", "\n"]], 8)
    for _ in range(7500):
        yield mixed(rnd, [BASES, MARKS, MARKS], 7)
    for _ in range(3000):
        yield mixed(rnd, [MARKS, letters, SPACES, marks, DIGITS, tails], 9)
    for _ in range(3000):
        yield mixed(rnd, [BASES, MARKS, letters, [" "], EMOJI], 9)
    for _ in range(3000):
        yield mixed(rnd, [EMOJI, EMOJI, letters, [" "]], 7)
    for _ in range(8000):
        yield "".join(fragments(rnd, rnd.choice(SENTENCES)) for _ in range(rnd.randrange(1, 4)))
    for _ in range(3000):
        yield "".join(fragments(rnd, rnd.choice(CODE)) + rnd.choice(["", "\n", "\n    ", "\r\n\t"])
                      for _ in range(rnd.randrange(1, 4)))
    for _ in range(2000):
        yield "".join(any_code_point(rnd) for _ in range(rnd.randrange(1, 8)))
    for unit in ["a", "A", " ", "\n", "\r\n", "\t", "1", ".", "é", "e\u0301", "\u0301", "\u0301\u0327", "漢", "👍", "ab",
                 "lo", " a", "a ", "-=", "\u180e", "\xa0", "ปี", "\u1100\u1161\u11a8", "'s", "<|im_end|>", "\x00"]:
        for n in (2, 3, 7, 15, 16, 17, 31, 32, 33, 34, 63, 64, 65, 100, 127, 255, 256, 300, 1000, 3000):
            yield unit * n


def decodings():
    """Bytes that test where a decoder gives up a sequence: every short combination of the bounds."""
    bounds = [0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf1,
              0xf4, 0xf5, 0xff]
    for n in range(3):
        for combination in itertools.product(bounds, repeat=n):
            yield bytes(combination)
    rnd = random.Random("reel decodings 1")
    for _ in range(6000):
        yield bytes(rnd.choice(bounds) for _ in range(rnd.randrange(3, 9)))
    for sentence in SENTENCES:
        data = bytearray(sentence.encode()[:60])
        data[rnd.randrange(len(data))] = rnd.choice(bounds)
        yield bytes(data)


def fnv32(data):
    h = 0x811C9DC5
    for byte in data:
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return h


def fnv64(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def byte_alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    return {chr(c): b for b, c in [*zip(printable, printable), *zip(rest, itertools.count(0x100))]}


def token_table(tokenizer):
    alphabet, added = byte_alphabet(), tokenizer.get_added_tokens_decoder()
    data = bytearray()
    for i in range(tokenizer.get_vocab_size()):
        text = tokenizer.id_to_token(i)
        token = text.encode() if i in added else bytes(alphabet[c] for c in text)
        assert tokenizer.decode([i], skip_special_tokens=False) == token.decode("utf-8", "replace")
        data += struct.pack("<I", len(token)) + token
    return bytes(data)


def load(family):
    """tokenizer.json, and the tokens that only tokenizer_config.json lists, as transformers adds them."""
    with lzma.open(os.path.join(HERE, family, "tokenizer.json.xz")) as f:
        tokenizer = tokenizers.Tokenizer.from_buffer(f.read())
    path = os.path.join(HERE, family, "tokenizer_config.json.xz")
    if os.path.exists(path):
        with lzma.open(path) as f:
            added = json.load(f)["added_tokens_decoder"]
        for i, token in sorted((int(i), token) for i, token in added.items()):
            special = token.pop("special")
            if tokenizer.id_to_token(i) is None:
                tokenizer.add_tokens([tokenizers.AddedToken(special=special, **token)])
            assert tokenizer.token_to_id(token["content"]) == i
    return tokenizer


def main():
    loaded = [load(family) for family in FAMILIES]
    added = sorted({t.content for tok in loaded for t in tok.get_added_tokens_decoder().values()})
    texts = list(dict.fromkeys(strings(added)))  # no string twice
    encoded = [t.encode() for t in texts]
    out = bytearray(b"RTOKGOLD" + struct.pack("<I", len(texts)))
    out += b"".join(struct.pack("<I", len(e)) for e in encoded) + b"".join(encoded)
    for tok in loaded:
        for text in texts:
            ids = tok.encode(text, add_special_tokens=False).ids
            out += struct.pack("<I", fnv32(struct.pack("<%dI" % len(ids), *ids)))
        out += struct.pack("<Q", fnv64(token_table(tok)))
    pairs = [(d, d.decode("utf-8", "replace").encode()) for d in decodings()]
    out += struct.pack("<I", len(pairs))
    out += b"".join(struct.pack("<HH", len(d), len(t)) + d + t for d, t in pairs)
    packed = lzma.compress(bytes(out), preset=9 | lzma.PRESET_EXTREME)
    with open(os.path.join(HERE, "goldens.bin.xz"), "wb") as f:
        f.write(packed)
    print("%d strings of %d bytes, %d decodings, tokenizers %s: %d bytes" %
          (len(texts), sum(map(len, encoded)), len(pairs), tokenizers.__version__, len(packed)), file=sys.stderr)


main()
