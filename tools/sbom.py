#!/usr/bin/env python3
"""Writes reel-VERSION.cdx.json, a bill of materials in CycloneDX 1.6: what a build links, what it opens at run time, and
what it carries. Needs no package but Debian's binutils.

usage: sbom.py [FOLDER]            of build/release to FOLDER (build/dist)
       sbom.py --wheel FOLDER SOURCES FILE LIBRARY...
                                   of a wheel to FILE: python/build_wheel.sh linked the LIBRARYs of FOLDER/lib, from Debian's
                                   source packages in SOURCES, and FOLDER/stage is what goes into the wheel
       sbom.py --check FILE        judges FILE by CycloneDX' schema; needs PyPI's cyclonedx-python-lib[json-validation].
                                   FILE may be a wheel: its bill has to name each program and library in it, by its hash

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
import zipfile
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
    "libmbedcrypto": ("mbedtls", "Apache-2.0", "https://www.trustedfirmware.org/projects/mbed-tls/"),
    "libmbedtls": ("mbedtls", "Apache-2.0", "https://www.trustedfirmware.org/projects/mbed-tls/"),
    "libmbedx509": ("mbedtls", "Apache-2.0", "https://www.trustedfirmware.org/projects/mbed-tls/"),
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


def digest(content):
    return [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]


def sha256(path):
    return digest(path.read_bytes())


def licence(text):
    if " OR " in text or " AND " in text:
        return [{"expression": text}]
    return [{"license": {"name" if "'" in text else "id": text}}]


def needed(path):
    out = run("readelf", "--dynamic", "--wide", str(path))  # of any processor's files, as objdump is not
    return re.findall(r"\(NEEDED\)\s+Shared library: \[(\S+)\]", out)


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


def project_of(library):
    key = library.split(".so")[0].split(".a")[0]
    if key not in LINKED:
        sys.exit(f"sbom.py: {library} is linked, whose licence is not in this script: write it into LINKED")
    return LINKED[key]


def library_component(project, spdx, url):
    return {"type": "library", "bom-ref": f"linked/{project}", "name": project, "scope": "required",
            "licenses": licence(spdx), "externalReferences": [{"type": "website", "url": url}], "properties": []}


def linked_components(build):
    """Components by project, and the references that the program and the library depend on."""
    components, depends = {}, {}
    for name in BUILT:
        path = build / name
        if not path.is_file():
            sys.exit(f"sbom.py: {path} does not exist: build it first (make)")
        libraries = needed(path)
        if not libraries:
            sys.exit(f"sbom.py: {path}: no linked library was found; readelf is of Debian's package binutils")
        for soname in libraries:
            project, spdx, url = project_of(soname)
            version, purl = package_of(path, soname)
            one = components.setdefault(project, library_component(project, spdx, url))
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


def carried_components(models, where, prefix=""):
    """The models, whose files are named as they are after `prefix`."""
    out = []
    for name, folder in models.items():
        path = ROOT / folder
        known = json.loads((path / "PROVENANCE.json").read_text(encoding="utf-8"))
        files = [{"type": "file", "bom-ref": f"carried/{name}/{f}", "name": prefix + f, "hashes": sha256(path / f)}
                 for f in MODEL_FILES if (path / f).is_file()]
        out.append({"type": "machine-learning-model", "bom-ref": f"carried/{name}", "name": name,
                    "description": f"{known['what']}; {where}", "licenses": licence("MIT"), "components": files,
                    "properties": [{"name": "reel:parameters", "value": str(known["parameters"])},
                                   {"name": "reel:provenance", "value": f"{folder}/PROVENANCE.json"}]})
    return out


def reel_version():
    header = (ROOT / "include/reel.h").read_text(encoding="utf-8")
    return ".".join(re.search(rf"REEL_VERSION_{p} (\d+)", header)[1] for p in ("MAJOR", "MINOR", "PATCH"))


def write(path, main, components, dependencies):
    when = os.environ.get("SOURCE_DATE_EPOCH") or run("git", "-C", str(ROOT), "log", "-1", "--format=%ct").strip()
    when = int(when or (ROOT / "include/reel.h").stat().st_mtime)
    bom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"timestamp": datetime.fromtimestamp(when, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                     "component": main},
        "components": components, "dependencies": dependencies,
    }
    # The number follows from the content.
    bom["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bom, sort_keys=True)).urn
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(bom, indent=2) + "\n", encoding="utf-8")
    os.replace(part, path)


def make(out):
    version = reel_version()
    linked, depends = linked_components(ROOT / "build/release")
    archive = out / f"reel-{version}.tar.xz"
    main = {"type": "application", "bom-ref": "reel", "name": "reel", "version": version, "licenses": licence("MIT")}
    if archive.is_file():
        main["externalReferences"] = [{"type": "source-distribution", "url": archive.name, "hashes": sha256(archive)}]
    parts = [{"type": kind, "bom-ref": f"built/{name}", "name": name, "version": version, "licenses": licence("MIT")}
             for name, kind in BUILT.items()]
    opened, carried = opened_components(), carried_components(MODELS, "inside the program")
    path = out / f"reel-{version}.cdx.json"
    write(path, main, parts + linked + opened + carried, [
        {"ref": "reel", "dependsOn": [p["bom-ref"] for p in parts]},
        {"ref": "built/reel", "dependsOn": sorted(depends["reel"]) + [c["bom-ref"] for c in opened + carried]},
        {"ref": "built/libreel.so", "dependsOn": sorted(depends["libreel.so"])}])
    print(f"{path}: {len(linked)} linked, {len(opened)} opened at run time, {len(carried)} models carried")


def debian_purl(package, version, arch):
    return f"pkg:deb/debian/{package}@{version.replace(':', '%3A').replace('+', '%2B')}?arch={arch}"


def debian_sources(work, sources):
    """{source package: (version, its files with their hashes)} of what is unpacked in `work`."""
    found = {}
    for changelog in sorted(work.glob("*/debian/changelog")):
        name, version = re.match(r"(\S+) \((\S+)\)", changelog.read_text(encoding="utf-8")).groups()
        dsc = sources / f"{name}_{version.split(':')[-1]}.dsc"
        if not dsc.is_file():
            sys.exit(f"sbom.py: {changelog.parent.parent} is unpacked from {dsc}, which is not there")
        files = re.search(r"^Checksums-Sha256:\n((?: .*\n)+)", dsc.read_text(encoding="utf-8"), re.M)[1].split("\n")[:-1]
        found[name] = version, [{"type": "source-distribution", "url": file, "hashes": [{"alg": "SHA-256", "content": sha}]}
                                for sha, _, file in map(str.split, files)]
    return found


def static_components(folder, sources, libraries):
    """Components by project, of static libraries and of the shared ones of a package of Debian's."""
    components, known = {}, debian_sources(folder / "work", sources)
    for name in libraries:
        project, spdx, url = project_of(name)
        one = components.setdefault(project, library_component(project, spdx, url))
        source = next((s for s in (project, f"lib{project}") if s in known), None)
        if name.endswith(".a"):
            if source is None:
                sys.exit(f"sbom.py: {name}: the source of {project} is not in {folder}/work")
            one["version"], files = known[source]
            one["purl"] = debian_purl(source, one["version"], "source")
            if len(one["externalReferences"]) == 1:
                one["externalReferences"] += files
            file = folder / "lib" / name
            one.setdefault("components", []).append(
                {"type": "file", "bom-ref": f"linked/{project}/{name}", "name": name, "hashes": sha256(file)})
        else:
            file = next((folder / "stage/lib").glob(f"{name}.*"))
            arch = {"x86_64": "amd64", "aarch64": "arm64"}[folder.name]
            deb = next(sources.glob(f"lib{project}[0-9]*_{arch}.deb"))
            package, one["version"] = deb.name.split("_")[:2]
            one["version"] = one["version"].replace("%3a", ":")
            one["purl"] = debian_purl(package, one["version"], arch)
            one["externalReferences"].append({"type": "distribution", "url": deb.name, "hashes": sha256(deb)})
            one["components"] = [{"type": "file", "bom-ref": f"linked/{project}/{file.name}", "name": f"reel/lib/{file.name}",
                                  "hashes": sha256(file)}]
    return components


def make_wheel(folder, sources, out, libraries):
    version, stage = reel_version(), folder / "stage"
    linked = static_components(folder, sources, libraries)
    parts, dependencies = [], []
    for name, kind in {"libreel.so": "library", "bin/reel": "application"}.items():
        parts.append({"type": kind, "bom-ref": f"built/{name}", "name": f"reel/{name}", "version": version,
                      "licenses": licence("MIT"), "hashes": sha256(stage / name)})
        depends = {f"linked/{project_of(one)[0]}" for one in libraries} if name == "libreel.so" else {"built/libreel.so"}
        for soname in needed(stage / name):
            if soname == "libreel.so":
                continue
            project, spdx, url = project_of(soname)
            if project not in linked:
                linked[project] = library_component(project, spdx, url)
                linked[project]["description"] = "not carried: the machine's own"
            depends.add(f"linked/{project}")
        dependencies.append({"ref": f"built/{name}", "dependsOn": sorted(depends)})
    opened = opened_components()
    carried = carried_components({"demo": MODELS["demo"]}, "in the wheel", "reel/models/demo/")
    dependencies[0]["dependsOn"] += [one["bom-ref"] for one in opened]
    main = {"type": "application", "bom-ref": "reel", "name": "reel", "version": version, "licenses": licence("MIT"),
            "description": f"the package of Python for {folder.name}"}
    write(out, main, parts + [linked[k] for k in sorted(linked)] + opened + carried, [
        {"ref": "reel", "dependsOn": [one["bom-ref"] for one in parts + carried]}, *dependencies])
    print(f"{out}: {len(linked)} linked, {len(opened)} opened at run time, {len(carried)} models carried")


def read_bill(path):
    """The text of a bill, or of the one in a wheel; and {path in the wheel: content}, or None."""
    if path.suffix != ".whl":
        return path.read_text(encoding="utf-8"), None
    with zipfile.ZipFile(path) as wheel:
        bills = [name for name in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/sboms/[^/]+\.cdx\.json", name)]
        if len(bills) != 1:
            sys.exit(f"{path}: holds {len(bills)} bills of materials, 1 is wanted")
        return wheel.read(bills[0]).decode(), {name: wheel.read(name) for name in wheel.namelist() if name.startswith("reel/")}


def check_files(path, components, files):
    """Whether the files of a wheel are those that its bill names, and no program or library is left out."""
    named = {one["name"]: one["hashes"] for one in components if "hashes" in one and one["name"].startswith("reel/")}
    for name, hashes in named.items():
        if name not in files:
            sys.exit(f"{path}: its bill names {name}, which it does not hold")
        if digest(files[name]) != hashes:
            sys.exit(f"{path}: {name} is not the file that its bill names")
    for name, content in files.items():
        if content[:4] == b"\x7fELF" and name not in named:
            sys.exit(f"{path}: {name} is not in its bill")
    return len(named)


def check(path):
    try:
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator
    except ImportError:
        sys.exit("sbom.py: --check needs PyPI's cyclonedx-python-lib[json-validation]")
    text, files = read_bill(Path(path))
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong:
        sys.exit(f"{path}: {wrong}")
    bom = json.loads(text)
    components = [c for one in bom["components"] for c in [one, *one.get("components", [])]]
    refs = {"reel"} | {one["bom-ref"] for one in components}
    named = {ref for d in bom["dependencies"] for ref in [d["ref"], *d["dependsOn"]]}
    if named - refs:
        sys.exit(f"{path}: dependencies name what is no component: {', '.join(sorted(named - refs))}")
    held = f", {check_files(path, components, files)} files of the wheel as they are named" if files is not None else ""
    print(f"{path}: valid CycloneDX 1.6, {len(bom['components'])} components{held}")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        check(sys.argv[2])
    elif len(sys.argv) > 5 and sys.argv[1] == "--wheel":
        make_wheel(*map(Path, sys.argv[2:5]), sys.argv[5:])
    elif len(sys.argv) <= 2 and not (len(sys.argv) == 2 and sys.argv[1].startswith("-")):
        make(Path(sys.argv[1]) if len(sys.argv) == 2 else ROOT / "build/dist")
    else:
        sys.exit(__doc__)
