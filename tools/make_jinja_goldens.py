#!/usr/bin/env python3
"""Writes tests/fixtures/jinja/cases.json: small templates, their variables, and what transformers' own Jinja
environment makes of them.

    tools/make_jinja_goldens.py OUT.json

Needs transformers and jinja2. A case is {"template", "vars", "out"} or, where rendering raises, {"template", "vars",
"error": kind, "line", "message"}; the line is that of syntax errors. The clock of strftime_now stands still.
"""
import datetime
import json
import sys

import jinja2
import transformers.utils.chat_template_utils as utils


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 1, 5, 15, 4, 9)


utils.datetime = Clock

PEOPLE = [{"name": "Bob", "age": 30, "city": "Rom"}, {"name": "alice", "age": 25, "city": "Oslo"},
          {"name": "Carol", "age": 30, "city": "rom"}, {"name": "dave", "age": 4, "city": "Oslo"}]
VARS = {
    "a": 7, "b": -3, "f": 2.5, "t": True, "n": None, "s": "Hello, World", "e": "", "u": "Grüße, Ωμέγας 🎉!",
    "l": [1, 2, 3, 4, 5], "d": {"x": 1, "y": [1, 2], "z": {"w": "deep"}}, "words": ["foo", "Bar", "baz", "Foo"],
    "people": PEOPLE, "ws": "  \t padded \n ", "lines": "one\ntwo\r\nthree\n", "html": "<b>\"&'</b>",
    "big": 123456789012345678901234567890, "nested": [[1, [2, 3]], {"k": [None, True]}],
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi\n"},
                 {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello", "tool_calls": [
                     {"type": "function", "function": {"name": "f", "arguments": {"q": "é", "n": 1.0}}}]}],
}

# Expressions, each printed.
EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2
7 // 2, -7 // 2, 7 % -3, -7 % 3, 7.5 // 2, -7.5 % 2, 2 ** 10, 2 ** -1, -2 ** 2, 2 ** 3 ** 2
1 / 3, 1e16, 1e15, 1e-5, 0.0001, 1.0, 123456789.125, 1e300 * 10, -0.0, 5e-324, 0.1 + 0.2
1_000, 0x1f, 0b101, 0o17, 1_0.5_0, 0xff_ff
a, b, f, t, n, big
true, false, none, True, False, None
t + 1, t * 3, true == 1, 1 == 1.0, "1" == 1, none == false
a == 7 and b < 0 or f, not a, not e, a and s, e or "x", n or 0
1 < 2 < 3, 1 < 3 < 2, 3 > 2 >= 2 != 1, 1 < 2 == 2
"a" in s, "World" in s, "z" not in s, 3 in l, 9 in l, "x" in d, "q" in d, not 3 in l
[1, 2] + [3], (1, 2) + (3,), [0] * 3, "ab" * 2, 2 * "ab", "x" * 0, "x" * -1
"a" ~ 1 ~ none ~ 2.0 ~ [1, "x"] ~ {"k": "v"}
"a" "b" 'c'
"tab\t nl\n \x41 \u00e9 \U0001F389 \\ \' \" \101 \q"
'it\'s', "q\"q", "line\
joined"
[1, "two", 3.0, none, true, [], {}, (), (1,), (1, 2)]
{"a": 1, 'b': [1], 3: "x", none: 1, true: 2, 2.5: "f"}
{"a": 1, "a": 2}, {1: "int", 1.0: "float", true: "bool"}
"it's", ["it's", 'say "x"', "both ' and \""], "\n\t\r\\", ["\n\t\r\\\x00\x7f\u200b\u00e9🎉"]
s[0], s[-1], s[99], s[0:5], s[:-1], s[::2], s[::-1], s[-5:], s[5:2], s[1:9:3], s[9:1:-3], s[100:], s[:100]
u[0], u[2], u[-2], u[1:4], u[::-1], u[::3], u[-3:], u|length
l[0], l[-1], l[1:3], l[::-1], l[::2], l[-2:], l[:0], l[10:], l[5:0:-2], (1, 2, 3)[1:], (1,2,3)[::-1]
d.x, d["x"], d.y[1], d.z.w, d["z"]["w"], d.y.0, d.missing, d["missing"]
d.items()|list, d.keys()|list, d.values()|list, d.get("x"), d.get("q"), d.get("q", 5), d|length
d.items(), d.keys(), d.values()
range(5), range(1, 5), range(0, 10, 3), range(5)|list, range(5, 0, -2)|list, range(3)[1], range(10)[2:5]|list, range(3)|length
range(10)[::-2]|list, range(0), range(5).start, 3 in range(5), 2.0 in range(5)
missing, missing is defined, missing|default("d"), missing.x|default("d") if false else "ok"
missing == missing, missing == none, [missing], missing|length, missing ~ "x", missing|list
a if true else b, a if false else b, a if false, (a if e else b) if t else f
"yes" if a is odd else "no"
a is defined, a is odd, a is even, a is divisibleby 7, a is divisibleby(2), a is number, a is integer, a is float
f is number, f is integer, f is float, t is boolean, t is true, t is false, t is number, t is integer, n is none
s is string, s is mapping, s is iterable, s is sequence, l is sequence, d is mapping, d is iterable, a is iterable, d is sequence
range(3) is sequence, range(3) is iterable, d.items() is sequence, none is iterable, none is sequence
a is eq 7, a is equalto 7, a is ne 7, a is lt 8, a is lessthan 3, a is gt 1, a is ge 7, a is le 6, a is greaterthan 9, a is ==(7)
1 is in [1, 2], "a" is in "abc", 5 is not in l, a is not none, a is sameas a, none is sameas none, true is sameas 1
"abc" is lower, "ABC" is upper, "aBc" is lower, "1" is lower, "" is upper, "É" is upper
"upper" is filter, "nope" is filter, "odd" is test, "nope" is test, s is callable, range is callable, s is escaped, s|e is escaped
big is integer, big is number, big + "" if false else big, big|string, [big], big == big
-5|abs, 5|abs, -2.5|abs, (-5)|abs, true|abs
s|upper, s|lower, s|title, s|capitalize, s|length, s|count, s|reverse, s|first, s|last, s|list
u|upper, u|lower, u|title, u|capitalize, "ß"|upper, "ŉ"|upper, "ΣΑΣ"|lower, "İ"|lower, "ǆ"|capitalize, "ﬁx"|title, "ǰ"|upper
"hello wORLD-foo (bar) [x] {y} <z> it's"|title, "o'neil"|title, "o'neil a1b"|capitalize
ws|trim, "xxaxx"|trim("x"), "abcab"|trim("ab"), ws|trim|length, "\u00a0x\u3000"|trim, "\x1cx\x85"|trim
s|replace("l", "L"), s|replace("l", "L", 2), s|replace("", "-"), s|replace("o", ""), s|replace("World", u), 123|replace(2, "x")
s|replace("", "-", 3), ""|replace("", "x"), "aaa"|replace("aa", "b")
l|join, l|join(", "), words|join("-"), people|join(",", attribute="name"), people|join(attribute="age"), s|join("."), []|join(",")
l|first, l|last, []|first, []|last, ""|first, words|first, {"a": 1}|first, {"a":1,"b":2}|last, range(3)|last
l|sum, l|sum(start=10), people|sum(attribute="age"), people|sum("age", 1), []|sum, [1.5, 2]|sum, [[1],[2]]|sum(start=[])
l|min, l|max, words|min, words|max, words|max(true), people|map(attribute="age")|max, [3, 1.5, true]|min, []|max
(people|max(attribute="age")).name, (people|min(attribute="name")).name
words|sort, words|sort(true), words|sort(case_sensitive=true), people|sort(attribute="name")|map(attribute="name")|list
people|sort(attribute="age,name")|map(attribute="name")|list, people|sort(reverse=true, attribute="age")|map(attribute="name")|list
[3, 1.0, 2, true]|sort, [[2], [1, 5], [1]]|sort, {"b": 1, "a": 2}|sort, "hello"|sort, nested[0]|length
words|unique|list, words|unique(true)|list, people|unique(attribute="city")|map(attribute="name")|list, [1, 1.0, true, 2]|unique|list
people|map(attribute="name")|list, people|map(attribute="zip", default="?")|list, words|map("upper")|list, words|map("replace", "o", "0")|list
people|selectattr("age", "gt", 20)|map(attribute="name")|list, people|rejectattr("age", "equalto", 30)|map(attribute="name")|join(" ")
people|selectattr("zip")|list, people|selectattr("zip", "undefined")|list|length, l|select("odd")|list, l|reject("odd")|list
l|select|list, [0, 1, "", "x", none]|select|list, [0, 1, "", "x", none]|reject|list, l|select("divisibleby", 2)|list, l|select("in", [1, 5])|list
people|groupby("city")|list, people|groupby("age")|map(attribute="grouper")|list, people|groupby("city", case_sensitive=true)|map("first")|list
people|groupby("zip", default="none")|map("last")|map("length")|list
l|batch(2)|list, l|batch(2, 0)|list, l|slice(2)|list, l|slice(3, "x")|list, []|batch(2)|list
l|reverse|list, (1, 2)|reverse|list, d|reverse|list, d|list, d|dictsort, {"b": 1, "A": 2, "c": 0}|dictsort
{"b": 1, "A": 2, "c": 0}|dictsort(true), {"b": 1, "A": 2}|dictsort(by="value"), {"b": 1, "A": 2}|dictsort(reverse=true), d|items|list
"42"|int, "42.9"|int, "x"|int, "x"|int(5), "ff"|int(base=16), "0x1f"|int(0, 16), " 7 "|int, 3.9|int, -3.9|int, none|int, true|int, "1_000"|int, "1e3"|int, "0b11"|int(0,2), ""|int, big|int, "-5"|int
"3.5"|float, "x"|float, "x"|float(1.5), 3|float, "1e3"|float, "inf"|float, "-nan"|float, none|float, "1_0.5"|float, " 2 "|float
42.55|round, 42.55|round(1), 42.55|round(1, "floor"), 42.51|round(1, "ceil"), 2.5|round, 3.5|round, 42|round, -2.5|round, 1234|round(-2), 0.125|round(2), 2.675|round(2)
1|string, none|string, [1]|string, 1.0|string, true|string, "x"|string
html|e, html|escape, html|e|e, html|forceescape, html|safe, (html|safe) + "<", ("<"|e) ~ "<", [html|e]
"%s and %d"|format("x", 3), "%(a)s-%(b)05.1f"|format(a=1, b=2.25), "%s"|format([1]), "%%|%5s|%-5s|%05d|%+d|% d|%x|%X|%o|%e|%.2f|%g|%c|%r" % ("a", "b", 42, 7, 7, 255, 255, 8, 12345.678, 3.14159, 0.0001, "z", "q")
"%s" % 5, "%s %s" % (1, 2), "%d" % 3.9, "%i%%" % 5, "%10.3s|" % "abcdef", "%-10s|" % "ab", "%#x %#o" % (255, 8), "%s" % none, "%*d" % (5, 3), "%5c|" % "x"
"{} {}".format(1, 2), "{0} {1} {0}".format("a", "b"), "{x} {y}".format(x=1, y="z"), "{:>5}|{:<5}|{:^5}|{:*^7}".format("a", "b", "c", "d"), "{:05d} {:+d} {:,} {:x} {:#x} {:b} {:.2f} {:e} {:%}".format(42, 7, 1234567, 255, 255, 5, 3.14159, 12345.6, 0.25)
"{{}} {}".format(1), "{!r} {!s}".format("a", "b"), "{0[x]} {0[y]}".format({"x": 1, "y": 2}), "{:{}}|".format("a", 4), "{:.3}".format("abcdef"), "{:8.3f}|{:<8}|{:08.2f}".format(3.14159, 2.5, -1.5), "{:,.2f}".format(1234567.891), "{:5}|{:5}|".format(1, "a"), "{:g} {:G}".format(1e10, 1e-10), "{}".format(none), "{}".format([1, "x"]), "{:d}".format(true), "{}".format(true)
"foo\nbar\n\nbaz"|indent, "foo\nbar"|indent(2), "foo\nbar\n\nb"|indent(2, true), "a\n\nb"|indent(2, false, true), "a\nb"|indent("> "), ""|indent, "a\n"|indent, "a\r\nb"|indent, "x\ny"|indent(width=2, first=true)
"a long text that is cut"|truncate(10), "a long text that is cut"|truncate(10, true), "short"|truncate(10), "a long text that is cut"|truncate(12, false, "~"), "abcdefghijklmno"|truncate(10, leeway=0), "abcdefghijklm"|truncate(10)
s|wordcount, "a-b c_d é"|wordcount, ""|wordcount, "x"|center(5) ~ "|", "ab"|center(5) ~ "|", "abc"|center(2)
"a b/c?d=é&~"|urlencode, {"a b": "c/d", "x": 1}|urlencode, [("a", 1), ("b", "2 3")]|urlencode, 5|urlencode
n|default("d"), n|default("d", true), e|default("d"), e|d("d", true), 0|default(1, boolean=true), missing|d, missing|default(none)
l|tojson, d|tojson, u|tojson, u|tojson(ensure_ascii=true), d|tojson(indent=2), d|tojson(separators=(",", ":")), {"b": 1, "a": [], "c": {}}|tojson(sort_keys=true, indent=1)
[1.0, 1e100, 0.1, -0.0, none, true, "\"\\\n\t\u0001/<>&'\u2028\x7f"]|tojson, {1: 2, none: 3, true: 4, 1.5: 5}|tojson, (1, 2)|tojson, []|tojson(indent=4), [[], {}]|tojson(indent=2), d|tojson(indent="--"), l|tojson(indent=0), "x"|tojson
nested|tojson, messages|tojson, messages[2].tool_calls[0].function|tojson(indent=4), big|tojson, html|tojson, d|tojson(indent=none), d|tojson(false, 2, (",", ": "), true)
s.upper(), s.lower(), s.title(), "they're bill's".title(), s.capitalize(), s.swapcase(), "straße".upper(), "ǆ".title(), "HELLO".casefold()
ws.strip(), "xxaxx".strip("x"), "xyaxy".lstrip("yx"), "xyaxy".rstrip("yx"), ws.lstrip(), ws.rstrip(), "".strip(), "éaé".strip("é")
"a,b,,c".split(","), " a  b c ".split(), "a,b,c".split(",", 1), "a b c".split(none, 1), "  a b  c  ".split(maxsplit=1), "abc".split("x"), "".split(), "".split(","), "a--b--c".split("--")[1], "a<sep>b".split("<sep>")[-1]
"a,b,c".rsplit(",", 1), " a  b c ".rsplit(), " a b c ".rsplit(none, 1), "a,b".rsplit(","), "aaa".rsplit("aa"), "a b  ".rsplit(maxsplit=0)
lines.splitlines(), lines.splitlines(true), "".splitlines(), "a\x0bb\x0cc\x1cd\x85e\u2028f".splitlines(), "\n".splitlines()
s.startswith("Hell"), s.startswith(("x", "He")), s.endswith("d"), s.endswith(("x",)), s.startswith("W", 7), s.endswith("o", 0, 5), s.startswith(""), "".startswith("a"), s.startswith("H", 20)
s.find("o"), s.find("z"), s.rfind("o"), s.find("o", 5), s.find("o", 5, 7), s.index("W"), s.rindex("l"), u.find("Ω"), u.rfind("!"), s.find(""), s.rfind(""), s.count("l"), s.count("l", 4), s.count(""), u.count("ς")
s.replace("l", "L"), s.replace("l", "L", 1), ", ".join(["a", "b"]), "".join([]), "-".join("abc"), s.removeprefix("Hello"), s.removesuffix("World"), s.removeprefix("x"), s.partition(", "), s.rpartition("o"), s.partition("#"), s.rpartition("#")
"5".zfill(3), "-5".zfill(4), "abc".zfill(2), "a".ljust(3) ~ "|", "a".rjust(3, "*"), "a".center(4, "-"), "ab".center(5, "-"), "é".ljust(3, "ü"), "a\tb".expandtabs(4), "a\tb".expandtabs()
"12".isdigit(), "1a".isdigit(), "".isdigit(), "²".isdigit(), "²".isdecimal(), "½".isnumeric(), "abc".isalpha(), "ab1".isalpha(), "ab1".isalnum(), " \t".isspace(), "".isspace(), "abc".islower(), "ABC".isupper(), "A1".isupper(), "abc".isascii(), "é".isascii(), "a\n".isprintable(), "é".isalpha()
l.index(3), l.count(2), (1, 2, 1).count(1), (1, 2).index(2), l.copy(), d.copy(), words.index("baz"), range(5).index(3), range(5).count(9)
dict(a=1, b=2), dict({"x": 1}, y=2), dict([("k", "v")]), dict()
namespace(a=1).a, namespace({"x": 5}).x, namespace().q is defined, namespace(a=[1])
(1, 2) == (1, 2), [1, 2] == (1, 2), [1] < [2], [1, 2] < [1], "a" < "b", "Z" < "a", (1, "a") < (1, "b"), {"a": 1} == {"a": 1.0}, [1, [2]] == [1, [2]], d.keys() == d.keys()
1 if missing else 2, missing or "x", missing and "x", not missing, missing is undefined
messages[0].role, messages[0]["content"], messages[-1].tool_calls[0].function.arguments, messages|length, messages[1:]|length, messages[0].items()|list
messages|map(attribute="content")|map("trim")|join("|"), messages|selectattr("role", "equalto", "user")|first|attr("content"), (messages|selectattr("role", "equalto", "user")|list)[0].content
messages|map(attribute="tool_calls.0.function.name", default="-")|list
messages[2].content.split("</think>")[-1].lstrip("\n"), messages[2].content.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n")
strftime_now("%Y-%m-%d %H:%M:%S"), strftime_now("%d %b %Y"), strftime_now("%A, %B %d, %Y %I:%M %p"), strftime_now("%y %j %U %W %w %e %-d %-m %% %a %D %T %F %R"), strftime_now("é"), strftime_now("%c|%x|%X|%u|%h|%n%t|")
joiner(", ")() ~ "x", joiner()() , cycler("a", "b").next(), cycler(1, 2).current
[1, 2, 3][missing|length], l[true], "abc"[false], {true: "t"}[1]
"a" ~ ("b" if false), ("b" if false) is defined, [("b" if false)]|length
s.nope is defined, l.nope is defined, s.__class__ is defined, d.__class__ is defined, d._x is defined, l.append is defined, d.update is defined
s["upper"](), d["items"]()|list, {"items": 1}.items is callable, {"items": 1}["items"], {"keys": 5}.keys()|list
[[1, 2], [3, 4]]|map("first")|list, [[1, 2], [3]]|map("length")|sum, ["a", "b"]|map("upper")|join, [1, 2]|map("string")|join("+")
l|map("float")|list, ["1", "x"]|map("int", 9)|list, [" a "]|map("trim")|list, [3, 1]|map("abs")|sort|first
[1, [2, "x"]]|string|length, {"a": {"b": none}}|string, (1,)|string, ()|string, nested|string
(l|select("odd")) is iterable, (l|map("string")) is sequence, (l|reverse) is defined, l|select("odd") is string
1.5 is lt 2, "b" is gt "a", [] is eq [], none is eq none, (1 == 1) is true
2 is divisibleby 2 and 3 is odd, not 2 is odd, a is not odd, a is odd or false, (a is odd)|string|lower
"a,b;c"|replace(",", ";")|upper|list|length, s|lower|replace("o", "0")|title|reverse, -a|abs, -l[0], +a, -(-a), - a ** 2, not not a
f"x" if false else 1
1 ~ 2 + 3, "a" ~ 1 * 2, 1 + 1 ~ 1, "x" ~ -1|abs, 2 * 3 % 4, 10 - 2 - 3, 2 + 3 == 5, 1 in [1] == true
""" .strip("\n").split("\n")

# Whole templates.
TEMPLATES = [
    "", "\n", "x\n", "x\n\n", "a\r\nb\rc\n", "plain {braces} %} }} text #}",
    "{% if a %}\n  yes\n{% endif %}\nend", "  {% if a %}\nyes\n  {% endif %}\n  end\n", "a {% if a %} b {% endif %} c\n",
    "x\n    {%- if a -%}\n   y   \n {%- endif -%}\n  z", "x\n  {%+ if a +%}\n y\n  {%+ endif %}\n z", "{{ a }}\n{{ b }}\n",
    "  {{ a }}  \n", "x  {{- a -}}  y", "x  {{+ a }}  y", "{# comment #}\nx", "  {# c #}\nx", "x {#- c -#} y", "x\n  {# c\nd #}  \ny", "{#- #}x{# -#}\n y",
    "{% raw %}{{ a }} {% if %}{% endraw %}", "{% raw -%}\n {{ x }} \n{%- endraw %}y", "  {% raw %}\n x\n  {% endraw %}\ny", "{%- raw %} a {% endraw -%} b",
    "{% for i in l %}{{ i }}{% endfor %}", "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}", "{% for i in l %}{{ loop.cycle('a', 'b', 'c') }}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for i in [1,1,2,2,1] %}{{ loop.changed(i) }},{% endfor %}", "{% for i in [] %}x{% else %}empty{% endfor %}", "{% for i in l %}{% else %}empty{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}", "{% for i in missing %}x{% else %}none{% endfor %}",
    "{% for i in l if i is odd %}{{ i }}{{ loop.index }}{{ loop.last }}{{ loop.length }} {% endfor %}", "{% for i in l if i > 9 %}x{% else %}no{% endfor %}",
    "{% for i in l if i is odd %}{{ loop.nextitem }}/{{ i }}/{{ loop.previtem }} {% endfor %}",
    "{% for i in l|select('odd') %}{{ i }}{{ loop.last }}{{ loop.revindex }}{% endfor %}", "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}", "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for i in l %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% for j in l %}{% if j > i %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% for i in l %}{% break %}{% else %}x{% endfor %}", "{% for i in l %}{% continue %}{% else %}x{% endfor %}",
    "{% for i in l %}{% for j in 'ab' %}{{ loop.index }}{{ loop.last }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for i in l %}{% set outer = loop %}{% for j in 'ab' %}{{ outer.index }}{{ j }} {% endfor %}{% endfor %}",
    "{% for x in nested recursive %}[{{ x if x is number }}{% if x is iterable %}{{ loop(x) }}{% endif %}{{ loop.depth }}]{% endfor %}",
    "{% for x in [{'n': 1, 'c': [{'n': 2, 'c': []}]}] recursive %}{{ x.n }}({{ loop(x.c) }}){% else %}-{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}", "{% for i in l %}{{ x }}{% set x = i %}{% endfor %}{{ x }}",
    "{% for a in l %}{{ a }}{% endfor %}{{ a }}", "{% if t %}{% set x = 1 %}{% endif %}{{ x }}", "{% if e %}{% set a = 1 %}{% endif %}{{ a }}", "{% for i in l %}{% if i > 3 %}{% set a = i %}{% endif %}{{ a }}{% endfor %}{{ a }}",
    "{% set ns = namespace(n=0, s='') %}{% for i in l %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }}{{ ns.s }}", "{% set ns = namespace() %}{% set ns.x = 1 %}{{ ns.x }}{{ ns.y is defined }}{{ ns }}",
    "{% set ns = namespace(a=1) %}{% set ns.a, b = 5, 6 %}{{ ns.a }}{{ b }}", "{% set a, b = b, a %}{{ a }} {{ b }}", "{% set x = 1, 2 %}{{ x }}", "{% set (x, y) = [1, 2] %}{{ x }}{{ y }}", "{% set x %}a{{ a }}b{% endset %}[{{ x }}]", "{% set x | upper | replace('A', 'z') %}a{{ s }}b{% endset %}[{{ x }}]",
    "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y }}", "{% set ns = namespace() %}{% set ns.t %}body{% endset %}{{ ns.t }}",
    "{% macro m(x, y=2) %}{{ x }}-{{ y }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(y=5, x=4) }} {{ m() }}", "{% macro m(x, y=x) %}{{ x }}{{ y }}{% endmacro %}{{ m('a') }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}",
    "{% macro m(a) %}{{ a }}{{ varargs|join(',') }}{% endmacro %}{{ m(1, 2, 3) }}", "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body {{ a }}{% endcall %}", "{% macro m() %}{% for i in l %}{{ caller(i, x=i) }}{% endfor %}{% endmacro %}{% call(i, x=0) m() %}<{{ i }}{{ x }}>{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}", "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}", "{% macro m() %}{{ a }}{% endmacro %}{{ m() }}{% set a = 1 %}{{ m() }}",
    "{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}", "{% macro m() %}x{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.caller }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{% for i in l %}{{ m(i) }}{% endfor %}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m() -%}\n  x\n{%- endmacro %}[{{ m() }}]", "{% macro outer() %}{% macro inner(x) %}({{ x }}){% endmacro %}{{ inner(1) }}{% endmacro %}{{ outer() }}",
    "{% filter upper %}a{{ s }}b{% endfilter %}", "{% filter replace('l', 'L')|upper %}{{ s }}{% endfilter %}", "{% with x = 1, y = a %}{{ x }}{{ y }}{% endwith %}{{ x }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% generation %}x{{ a }}{% endgeneration %}", "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}", "{% for m in messages %}{%- generation -%}\n{{ m.role }}{%- endgeneration %}{% endfor %}", "{% print a, b %}",
    "{% if a == 7 %}1{% elif a == 8 %}2{% else %}3{% endif %}", "{% if e %}1{% elif b %}2{% else %}3{% endif %}", "{% if e %}1{% elif e %}2{% endif %}x", "{% if a is defined and a %}{% if b %}{{ b }}{% endif %}{% endif %}", "{% if (a, b) %}t{% endif %}", "{%if a%}x{%endif%}", "{% if a: %}x{% endif %}",
    "{% set g = l|select('odd') %}{{ g|list }}{{ g|list }}", "{% set g = l|map('string') %}{{ g|first }}{{ g|first }}{{ g|join }}", "{% set r = l|reverse %}{% for i in r %}{{ i }}{% endfor %}{% for i in r %}{{ i }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}", "{% set j = joiner('|') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", "{% set x = {'a': {'b': [1, 2]}} %}{{ x.a.b[1] }}{{ x['a']['b'][-1] }}",
    "{{ [1,2,3,] }}{{ (1,2,) }}{{ {'a':1,} }}", "{{ dict(a=1,) }}", "{{ range(3,) | list }}", "{{ (1) }}{{ () }}{{ (1,) }}", "{{ m(*[1, 2]) if false else 1 }}", "{% macro m(a, b, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(1, **{'b': 5, 'c': 6}) }}{{ m(*[1], b=2) }}{{ m(1, *[2]) }}",
    "{{ 'a' if a else 'b' if b else 'c' }}", "{{ {'a': 1}['a'] }}{{ [1, 2][0] }}{{ 'abc'[1] }}{{ (1, 2)[1] }}", "{{ 'x'.join(['a', 'b']).upper()[0] }}", "{{ s | upper }}{{ s|upper|lower }}", "{{ loop is defined }}{% for i in [1] %}{{ loop is defined }}{% endfor %}",
    "{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "{% for x in l if x != 3 %}{% set a = x %}{{ a }}{% endfor %}{{ a }}", "{% for x in l %}{% with y = x %}{% if y > 2 %}{% set a = y %}{% endif %}{{ a }}{% endwith %}{% endfor %}", "{% set x = 1 %}{% macro m(y=x) %}{{ y }}{% endmacro %}{{ m() }}", "{% for i in l %}{% set a = i %}{% for j in [1] %}{% set a = 9 %}{{ a }}{% endfor %}{{ a }}{% endfor %}{{ a }}",
    "{% set x = none %}{{ x }}{{ x is none }}", "{{ none }}", "{% if not tools is defined %}no{% endif %}{% if tools is not defined %}no{% endif %}", "{{ people|map(attribute='name')|join(', ') }}\n", "{{- s -}}", "{{s}}", "{{ '}}' }}", "{{ '%}' }}{% if '%}' %}x{% endif %}", "{{ {'a': {'b': 1}} }}",
    "{{ a\n+\nb }}", "{% set x =\n 5 %}{{\n x }}", "{# {{ a }} {% if %} #}x", "{{ 'a\nb' }}", "{% if a %}{# c #}{% endif %}", "\ta\n\t{% if a %}\n\tb\n\t{% endif %}\n", "{% if a %}\n\n\nx{% endif %}", "{% set a = 1 %}{% set b = 2 -%}   \n   x", "{{ a }}{% if a %}  \n{% endif %}|",
    "{% if false %}{{ 1|nope }}{% endif %}ok", "{{ (1|nope) if false else 'ok' }}", "{% if false %}{{ 1 is nope }}{% endif %}ok",
    "{{ caller }}{{ varargs }}", "{% set loop = 5 %}{{ loop }}", "{% macro a() %}m{% endmacro %}{{ a() }}", "{% set range = 5 %}{{ range }}", "{{ namespace is callable }}{{ raise_exception is callable }}{{ lipsum is defined if false else 1 }}",
    "{% for i in range(3) %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}", "{% for i in l[::-1] %}{{ i }}{% endfor %}", "{% for m in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}{{ index }}{{ m.role }};{% endfor %}",
]
# What raises.
ERRORS = [
    "{{ missing.x }}", "{{ missing['x'] }}", "{{ d.missing.x }}", "{{ d.x.y.z }}", "{{ missing() }}", "{{ missing + 1 }}", "{{ 1 + missing }}", "{{ missing < 1 }}", "{{ -missing }}", "{{ missing|int }}", "{{ l[9].x }}", "{{ none.x.y }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ [] + () }}", "{{ 'a' - 'b' }}", "{{ none + 1 }}",
    "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 0 ** -1 }}", "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ [1] < 1 }}", "{{ 1 in 5 }}", "{{ 1 in 'abc' }}", "{{ 5|length }}", "{{ none|length }}", "{{ 5|list }}", "{{ 5|join }}", "{% for i in 5 %}{% endfor %}", "{% for i in none %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}",
    "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% set a, b = 1 %}", "{% set d.x = 1 %}", "{% set missing.x = 1 %}", "{{ raise_exception('no such role: ' ~ s) }}", "{{ raise_exception('é') }}", "{{ raise_exception() }}", "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ d.pop('x') }}", "{{ l.sort() }}", "{{ s.__class__ }}{{ s.__class__.x }}",
    "{{ s.__class__() }}", "{{ s() }}", "{{ 5() }}", "{{ d.x() }}", "{{ s.nope() }}", "{{ s.upper(1) }}", "{{ s.split('') }}", "{{ s.split(1) }}", "{{ s.index('z') }}", "{{ l.index(99) }}", "{{ s.join([1]) }}", "{{ s.startswith(1) }}", "{{ '%d' % 'x' }}", "{{ '%s %s' % 1 }}", "{{ '%s' % (1, 2) }}", "{{ '%z' % 1 }}", "{{ '%(a)s' % {'b': 1} }}", "{{ '{}'.format() }}",
    "{{ '{x}'.format(y=1) }}", "{{ '{'.format() }}", "{{ '{:d}'.format('x') }}", "{{ range(1000000) }}", "{{ range() }}", "{{ range(1, 2, 0) }}", "{{ range('a') }}", "{{ {[]: 1} }}", "{{ {[1]: 2} }}", "{{ l|sort(nope=1) }}", "{{ l|join(1, 2, 3) }}", "{{ [1, 'a']|sort }}", "{{ [1, 'a']|max }}", "{{ ['a']|sum }}", "{{ l|map('nope')|list }}", "{{ l|map|list }}",
    "{{ l|select('nope')|list }}", "{{ l|selectattr|list }}", "{{ 5|upper.x }}", "{{ l|slice(0)|list }}", "{{ d|tojson(nope=1) }}", "{{ missing|tojson }}", "{{ range(3)|tojson }}", "{{ (l|map('string'))|tojson }}", "{{ (l|map('string'))|length }}", "{{ {(1,2): 3}|tojson }}", "{{ {'a': 1, 2: 3}|tojson(sort_keys=true) }}", "{{ 'x'|abs }}", "{{ 'x'|round }}",
    "{{ 1|round(1, 'nope') }}", "{{ 'abc'|truncate(1) }}", "{{ 5|dictsort }}", "{{ d|dictsort(by='nope') }}", "{{ 5|items|list }}", "{{ 5|indent }}", "{{ none|trim(1) }}", "{{ s|trim(1) }}", "{{ l|groupby }}", "{{ missing is divisibleby 2 }}", "{{ 'a' is odd }}", "{{ 'a' is divisibleby }}", "{{ a is in }}", "{{ a is defined(1) }}",
    "{% macro m(x) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(x) %}{% endmacro %}{{ m(y=2) }}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}", "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "{% for x in [[1]] %}{{ loop(x) }}{% endfor %}", "{{ namespace(_a=1) }}", "{% set ns = namespace() %}{% set ns._a = 1 %}",
    "{{ loop.index }}", "{% for i in l %}{{ loop.nope.x }}{% endfor %}", "{{ n[1:] }}", "{{ a[0:1] }}", "{{ d[1:2] }}", "{{ l[::0] }}", "{{ l['a':] }}", "{{ s[1.5] }}{{ s[1.5].x }}", "{{ {}['a'].b }}", "{{ cycler() }}", "{{ dict(1) }}", "{{ dict([1]) }}", "{{ strftime_now() }}", "{{ strftime_now(5) }}", "{{ messages[0].content.foo.bar }}", "{{ 1|nope2 if true else 1 }}", "{% if true %}{{ 1|nope3 }}{% endif %}",
    "{{ l|first|length }}", "{{ d.x|length }}", "{{ people|sort(attribute='zip') }}", "{{ big ~ 1 if false else (1 if none.x.y else 2) }}", "{{ (a if e).x }}", "{{ [].x.y }}", "{{ 'x' * 'y' }}", "{{ [] * [] }}", "{{ {} + {} }}", "{{ a[0].x }}", "{{ l|last|first }}", "{% call 5() %}{% endcall %}",
]
SYNTAX = [
    "{{", "{{ a", "{{ a }", "{%", "{% if", "{% if a %}", "{% if a %}x{% else %}", "{% for i in l %}", "{% for %}{% endfor %}", "{% for i l %}{% endfor %}", "{% endif %}", "{% endfor %}", "{% else %}", "{% nope %}", "{% if a %}{% endfor %}", "{% for i in l %}{% endif %}", "{{ }}", "{% if %}{% endif %}", "{% set %}", "{% set x %}", "{% set x = %}", "{% set 1 = 2 %}", "{% set 'a' = 2 %}", "{% set a.b.c = 2 %}",
    "{% set a[0] = 1 %}", "{{ a b }}", "{{ a + }}", "{{ + }}", "{{ * a }}", "{{ a..b }}", "{{ a. }}", "{{ a[ }}", "{{ a[1 }}", "{{ (a }}", "{{ a) }}", "{{ [1, 2 }}", "{{ [1 2] }}", "{{ {1: 2 }}", "{{ {1, 2} }}", "{{ {'a'} }}", "{{ 'abc }}", "{{ \"abc }}", "{{ a | }}", "{{ a|1 }}", "{{ a|nope }}", "{{ a is nope }}", "{{ a is }}", "{{ a is odd is even }}",
    "{{ a ? b }}", "{{ a $ b }}", "{{ a ! }}", "{{ a & b }}", "{{ f(a=1, 2) }}", "{{ f(a=1, a=2) }}", "{{ f(**a, *b) }}", "{{ f(**a, 1) }}", "{{ f(1 2) }}", "{{ f(,) }}", "{% macro %}{% endmacro %}", "{% macro m %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(1) %}{% endmacro %}", "{% macro m() %}", "{% call m %}{% endcall %}", "{% call m() %}", "{% filter %}{% endfilter %}",
    "{% filter nope %}{% endfilter %}", "{% filter upper %}", "{% with x %}{% endwith %}", "{% with x = 1 %}", "{% raw %}x", "{# x", "x\ny\n{{ a b }}", "x\n{% if a %}\ny\n\n{% nope %}", "\n\n{{ a|nope }}", "{% if a %}\n{% for i in l %}\n{{ i|nope }}\n{% endfor %}{% endif %}", "{{ a }}\n{# \n #}\n{{ 1 +* 2 }}", "{% do l.append(1) %}", "{% trans %}{% endtrans %}", "{% debug %}", "{% for loop in l %}{% endfor %}",
    "{% for i in l %}{% set loop = 1 %}{% endfor %}", "{% macro m(caller) %}{{ caller() }}{% endmacro %}", "{{ '\\x1' }}", "{{ '\\u12' }}", "{{ not }}", "{{ a not b }}", "{{ a if }}", "{{ a if b else }}", "{{ if a }}", "{{ a, }}{{ , }}", "{% 5 %}", "{% %}", "{{ 1.2.3 }}", "{{ 01 }}", "{{ a := 1 }}", "{{ lambda: 1 }}", "{{ a == }}", "{{ a in }}", "{% endraw %}", "{% generation %}x", "{% set x = 1 2 %}", "{% break x %}", "{{ a]b }}", "{{ (a] }}",
]


def kind_of(error):
    """TemplateError itself is what raise_exception raises."""
    syntax = isinstance(error, jinja2.exceptions.TemplateSyntaxError)
    return "TemplateSyntaxError" if syntax else type(error).__name__

# What stays Markup, and what joins Markup escaped.
MARKUP = ["{% set v = (" + base + "|safe)" + f + " %}{{ v is escaped }}{{ v ~ '<' }}{{ [v] }}"
          for base in ["'Hel<lo, a-b'", "'%s'", "'{}'"]
          for f in ["|capitalize", "|lower", "|upper", "|title", "|trim", "|trim('H')", "|last", "|first", "|reverse", "|list", "|indent",
                    "|truncate(3, true, '<', 0)", "|replace('l', '<')", "|join", "|center(15)", "|string", "|format('<')", "|default('<')",
                    ".upper()", ".title()", ".strip('H')", ".split(',')", ".rsplit(',', 1)", ".splitlines()", ".partition(',')",
                    ".replace('l', '<')", ".join(['<', 'a'])", ".format('<')", ".zfill(14)", ".center(15)", ".removeprefix('H')",
                    ".expandtabs()", ".swapcase()", ".casefold()", ".find('l')", "[0]", "[-1]", "[1:]", "[::-1]", "[:3:2]",
                    " ~ '<'", " + '<'", " * 2", " % ('<',)", " % html"]] + [
    "{{ ['<', 'a'|safe]|join('<') }}", "{{ 'x%s' % ('<'|safe) + '<' }}", "{{ '<'.replace('<', 'a'|safe) is escaped }}",
    "{{ '<' + ('a'|safe) + '<' }}", "{% set a %}<{% endset %}{{ a is escaped }}",
]


def case(template):
    entry = {"template": template}
    try:
        entry["out"] = utils._compile_jinja_template(template).render(**VARS)
    except Exception as error:  # whatever Python raises
        entry["error"] = kind_of(error)
        entry["line"] = getattr(error, "lineno", None) or 0
        if entry["error"] in ("UndefinedError", "TemplateError", "FilterArgumentError"):
            entry["message"] = str(error)
    return entry


def main():
    cases = []
    for line in EXPRESSIONS:
        if line.strip():
            cases.append(case("{{ (" + line + ") }}"))
    # Each part of an expression's list alone as well, where cutting at ", " leaves whole expressions.
    for line in EXPRESSIONS:
        depth, quote, part, parts = 0, None, "", []
        for i, c in enumerate(line):
            if quote:
                quote = None if c == quote and line[i - 1] != "\\" else quote
            elif c in "'\"":
                quote = c
            elif c in "([{":
                depth += 1
            elif c in ")]}":
                depth -= 1
            if c == "," and not depth and not quote:
                parts.append(part)
                part = ""
            else:
                part += c
        parts.append(part)
        if len(parts) > 1:
            cases += [case("{{ " + p.strip() + " }}") for p in parts if p.strip()]
    cases += [case(t) for t in TEMPLATES + ERRORS + SYNTAX + MARKUP]
    unique = {}
    for c in cases:
        unique.setdefault(c["template"], c)
    # An address that Python prints is no golden.
    kept = [c for c in unique.values() if " at 0x" not in c.get("out", "")]
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        # The variables as texts: they hold an integer that few readers of JSON keep.
        texts = {name: json.dumps(value, ensure_ascii=False) for name, value in VARS.items()}
        json.dump({"vars": texts, "cases": kept}, out, ensure_ascii=False, indent=0)
        out.write("\n")
    print(len(kept), "cases,", sum("error" in c for c in kept), "of them errors")


if __name__ == "__main__":
    main()
