#!/usr/bin/env python3
"""Writes reel-VERSION.cdx.json, a bill of materials in CycloneDX 1.6: what a build links, what it opens at run time, and
what it carries. Needs no package but Debian's binutils.

usage: sbom.py [FOLDER]            of build/release to FOLDER (build/dist)
       sbom.py --check FILE        judges FILE by CycloneDX' schema; needs PyPI's cyclonedx-python-lib[json-validation]

Linked libraries are read from the program and the shared library themselves (NEEDED of the dynamic section), their versions
from dpkg or rpm, where that knows the file. A library whose licence is not written here is an error, so that a new one is
looked at. The same build on the same machine gives the same bytes: the time is the commit's, or SOURCE_DATE_EPOCH.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = {"reel": "application", "libreel.so": "library"}
# soname without its number: name of the project, licence (SPDX), home page
LINKED = {
    "libc": ("glibc", "LGPL-2.1-or-later", "https://www.gnu.org/software/libc/"),
    "libm": ("glibc", "LGPL-2.1-or-later", "https://www.gnu.org/software/libc/"),
    "libdl": ("glibc", "LGPL-2.1-or-later", "https://www.gnu.org/software/libc/"),
    "libpthread": ("glibc", "LGPL-2.1-or-later", "https://www.gnu.org/software/libc/"),
    "ld-linux-x86-64": ("glibc", "LGPL-2.1-or-later", "https://www.gnu.org/software/libc/"),
    "ld-linux-aarch64": ("glibc", "LGPL-2.1-or-later", "https://www.gnu.org/software/libc/"),
    "libcurl": ("curl", "curl", "https://curl.se/"),
    "libcurl-gnutls": ("curl", "curl", "https://curl.se/"),
    "libjansson": ("jansson", "MIT", "https://github.com/akheron/jansson"),
    "libmicrohttpd": ("libmicrohttpd", "LGPL-2.1-or-later", "https://www.gnu.org/software/libmicrohttpd/"),
    "libnettle": ("nettle", "LGPL-3.0-or-later OR GPL-2.0-or-later", "https://www.lysator.liu.se/~nisse/nettle/"),
    "libsoxr": ("soxr", "LGPL-2.1-or-later", "https://sourceforge.net/projects/soxr/"),
    "libutf8proc": ("utf8proc", "MIT", "https://juliastrings.github.io/utf8proc/"),
    "libwslay": ("wslay", "MIT", "https://tatsuhiro-t.github.io/wslay/"),
}
# opened by name when they are there: name, licence (SPDX, or a name), what for, the source that opens it
OPENED = [
    ("libsndfile", "LGPL-2.1-or-later", "FLAC, Ogg, Opus and MP3", "src/audio/sndfile.c"),
    ("alsa-lib", "LGPL-2.1-or-later", "a microphone by ALSA", "src/cli/microphone_alsa.c"),
    ("pulseaudio", "LGPL-2.1-or-later", "a microphone by PulseAudio or PipeWire", "src/cli/microphone_pulse.c"),
    ("ffmpeg", "LGPL-2.1-or-later", "m4a, mp4 and webm, by the program of that name", "src/cli"),
    ("NVIDIA driver (libcuda, libnvidia-ml)", "NVIDIA's licence", "GPUs", "src/cuda/driver/driver.c"),
    ("NVIDIA NVRTC (libnvrtc)", "NVIDIA's licence", "compiling GPU kernels", "src/cuda/driver/nvrtc.c"),
]
MODELS = {"demo": "models/demo", "demo-speech": "models/speech"}
MODEL_FILES = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors",
               "golden.json"]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def sha256(path):
    return [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]


def licence(text):
    if " OR " in text or " AND " in text:
        return [{"expression": text}]
    return [{"license": {"name" if "'" in text else "id": text}}]


def needed(path):
    out = run("objdump", "-p", str(path))
    return re.findall(r"^\s+NEEDED\s+(\S+)", out, re.M)


def package_of(path, soname):
    """(version, purl) as the system's packages know it, or (None, None)."""
    found = re.search(rf"^\s*{re.escape(soname)} => (\S+)", run("ldd", str(path)), re.M)
    file = os.path.realpath(found[1]) if found else None
    for name in (file, file and re.sub(r"^/usr", "", file)):
        package = name and run("dpkg-query", "-S", name).split(":")[0]
        if package:
            version, arch = run("dpkg-query", "-W", "-f", "${Version} ${Architecture}\n", package).split("\n")[0].split(" ")
            return version, f"pkg:deb/debian/{package}@{version.replace(':', '%3A').replace('+', '%2B')}?arch={arch}"
    package = file and run("rpm", "-qf", "--qf", "%{NAME} %{VERSION}-%{RELEASE} %{ARCH}", file)
    if package and " " in package and "not owned" not in package:
        name, version, arch = package.split(" ")
        return version, f"pkg:rpm/{name}@{version}?arch={arch}"
    return None, None


def linked_components(build):
    """Components by project, and the references that the program and the library depend on."""
    components, depends = {}, {}
    for name in BUILT:
        path = build / name
        if not path.is_file():
            sys.exit(f"sbom.py: {path} does not exist: build it first (make)")
        libraries = needed(path)
        if not libraries:
            sys.exit(f"sbom.py: {path}: no linked library was found; objdump is of Debian's package binutils")
        for soname in libraries:
            key = soname.split(".so")[0]
            if key not in LINKED:
                sys.exit(f"sbom.py: {path} links {soname}, whose licence is not in this script: write it into LINKED")
            project, spdx, url = LINKED[key]
            version, purl = package_of(path, soname)
            one = components.setdefault(project, {
                "type": "library", "bom-ref": f"linked/{project}", "name": project, "scope": "required",
                "licenses": licence(spdx), "externalReferences": [{"type": "website", "url": url}], "properties": []})
            if version:
                one["version"], one["purl"] = version, purl
            entry = {"name": "reel:soname", "value": soname}
            if entry not in one["properties"]:
                one["properties"].append(entry)
            depends.setdefault(name, set()).add(one["bom-ref"])
    for one in components.values():
        one["properties"].sort(key=lambda p: p["value"])
    return [components[k] for k in sorted(components)], depends


def opened_components():
    out = []
    for name, spdx, what, source in OPENED:
        if not (ROOT / source).exists():
            sys.exit(f"sbom.py: {source}, which is to open {name}, does not exist")
        out.append({"type": "application" if name == "ffmpeg" else "library", "bom-ref": f"opened/{name.split(' (')[0]}",
                    "name": name, "scope": "optional", "licenses": licence(spdx),
                    "description": f"not linked: used at run time where it is installed, for {what}"})
    return out


def carried_components():
    out = []
    for name, folder in MODELS.items():
        path = ROOT / folder
        known = json.loads((path / "PROVENANCE.json").read_text(encoding="utf-8"))
        files = [{"type": "file", "bom-ref": f"carried/{name}/{f}", "name": f, "hashes": sha256(path / f)}
                 for f in MODEL_FILES if (path / f).is_file()]
        out.append({"type": "machine-learning-model", "bom-ref": f"carried/{name}", "name": name,
                    "description": f"{known['what']}; inside the program", "licenses": licence("MIT"), "components": files,
                    "properties": [{"name": "reel:parameters", "value": str(known["parameters"])},
                                   {"name": "reel:provenance", "value": f"{folder}/PROVENANCE.json"}]})
    return out


def make(out):
    build = ROOT / "build/release"
    header = (ROOT / "include/reel.h").read_text(encoding="utf-8")
    version = ".".join(re.search(rf"REEL_VERSION_{p} (\d+)", header)[1] for p in ("MAJOR", "MINOR", "PATCH"))
    when = os.environ.get("SOURCE_DATE_EPOCH") or run("git", "-C", str(ROOT), "log", "-1", "--format=%ct").strip()
    when = int(when or (ROOT / "include/reel.h").stat().st_mtime)
    linked, depends = linked_components(build)
    archive = out / f"reel-{version}.tar.xz"
    main = {"type": "application", "bom-ref": "reel", "name": "reel", "version": version, "licenses": licence("MIT")}
    if archive.is_file():
        main["externalReferences"] = [{"type": "source-distribution", "url": archive.name, "hashes": sha256(archive)}]
    parts = [{"type": kind, "bom-ref": f"built/{name}", "name": name, "version": version, "licenses": licence("MIT")}
             for name, kind in BUILT.items()]
    opened, carried = opened_components(), carried_components()
    bom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"timestamp": datetime.fromtimestamp(when, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                     "component": main},
        "components": parts + linked + opened + carried,
        "dependencies": [{"ref": "reel", "dependsOn": [p["bom-ref"] for p in parts]}] + [
            {"ref": "built/reel", "dependsOn": sorted(depends["reel"]) + [c["bom-ref"] for c in opened + carried]},
            {"ref": "built/libreel.so", "dependsOn": sorted(depends["libreel.so"])}],
    }
    # The number follows from the content.
    bom["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bom, sort_keys=True)).urn
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"reel-{version}.cdx.json"
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(bom, indent=2) + "\n", encoding="utf-8")
    os.replace(part, path)
    print(f"{path}: {len(linked)} linked, {len(opened)} opened at run time, {len(carried)} models carried")


def check(path):
    try:
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator
    except ImportError:
        sys.exit("sbom.py: --check needs PyPI's cyclonedx-python-lib[json-validation]")
    text = Path(path).read_text(encoding="utf-8")
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong:
        sys.exit(f"{path}: {wrong}")
    bom = json.loads(text)
    refs = {"reel"}
    for one in bom["components"]:
        refs |= {one["bom-ref"]} | {c["bom-ref"] for c in one.get("components", [])}
    named = {ref for d in bom["dependencies"] for ref in [d["ref"], *d["dependsOn"]]}
    if named - refs:
        sys.exit(f"{path}: dependencies name what is no component: {', '.join(sorted(named - refs))}")
    print(f"{path}: valid CycloneDX 1.6, {len(bom['components'])} components")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        check(sys.argv[2])
    elif len(sys.argv) <= 2 and not (len(sys.argv) == 2 and sys.argv[1].startswith("-")):
        make(Path(sys.argv[1]) if len(sys.argv) == 2 else ROOT / "build/dist")
    else:
        sys.exit(__doc__)
