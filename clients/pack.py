#!/usr/bin/env python3
"""Packs petstore for Python, JavaScript and Go: see `scripts/packages --help`."""

import argparse
import base64
import gzip
import hashlib
import io
import json
import re
import stat
import struct
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

USAGE = """\
Writes these packages, which have the name and version in Cargo.toml, to a folder:

    petstore-VERSION-py3-none-TAGS.whl    for pip: the program, and a plugin for pytest
    petstore-VERSION.tgz                  for npm
    petstore-linux-CPU-VERSION.tgz        for npm: the program, which petstore-VERSION.tgz depends on
    petstoretest-VERSION-linux-CPU.tgz    for Go: the program, and a module

The same program gives the same bytes. Needs Python 3.11, and without --program also Rust."""
REPOSITORY = Path(__file__).resolve().parent.parent
# The names of a processor in ELF, in tags of wheels, and in Node.js.
PROCESSORS = {62: ("x86_64", "x64"), 183: ("aarch64", "arm64")}


def main():
    parser = argparse.ArgumentParser(
        "scripts/packages", description=USAGE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--program", metavar="FILE", action="append", type=Path,
        help="a program for Linux, x86-64 or aarch64; can be repeated [default: cargo build --release]",
    )  # fmt: skip
    parser.add_argument(
        "--output", metavar="FOLDER", type=Path, default=REPOSITORY / "target/packages",
        help="older packages in it are deleted [default: target/packages]",
    )  # fmt: skip
    arguments = parser.parse_args()
    if not arguments.program:
        build = ["cargo", "build", "--locked", "--release", "--target-dir", "target"]
        subprocess.run(build, cwd=REPOSITORY, check=True)
        arguments.program = [REPOSITORY / "target/release/petstore"]
    try:
        packages = pack([file.read_bytes() for file in arguments.program])
    except (OSError, ValueError) as error:
        parser.error(str(error))
    arguments.output.mkdir(parents=True, exist_ok=True)
    for pattern in "petstore*.whl", "petstore*.tgz":
        for old in arguments.output.glob(pattern):
            old.unlink()
    for name, data in packages.items():
        (arguments.output / name).write_bytes(data)
        print(arguments.output / name)


def pack(programs):
    """Returns the packages with these programs, by their names."""
    about = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["package"]
    name, version = about["name"], about["version"]
    manifest = {field: about[field] for field in ("name", "version", "description", "license")}
    # Scripts for a release write those of third parties first.
    licences = {file.name: file.read_bytes() for file in sorted(REPOSITORY.glob("LICENSE-*"))}
    licences |= {file.name: file.read_bytes() for file in REPOSITORY.glob("target/third-party-licences.txt")}
    packages, platforms = {}, {}
    for program in programs:
        tags, cpu, is_static = platform(program)
        # PEP 440 writes 1.0.0-rc.1 without the hyphen, which separates the parts of the file's name.
        wheel_name = f"{name}-{version.replace('-', '')}"
        packages[f"{wheel_name}-py3-none-{tags}.whl"] = wheel(wheel_name, about, tags, program, licences)
        package = f"@{name}/linux-{cpu}"
        platforms[package] = version
        of_platform = manifest | {"name": package, "os": ["linux"], "cpu": [cpu], "main": "petstore"}
        # Yarn would leave it in an archive, where it cannot be executed.
        of_platform["preferUnplugged"] = True
        if not is_static:
            of_platform["libc"] = ["glibc"]
        files = {"package.json": json_of(of_platform), "petstore": program, **licences}
        packages[f"{name}-linux-{cpu}-{version}.tgz"] = tar("package", files)
        files = tree("go") | {"petstore": program, **licences}
        packages[f"petstoretest-{version}-linux-{cpu}.tgz"] = tar("petstoretest", files)
    files = tree("npm") | licences
    fields = manifest | json.loads(files["package.json"]) | {"optionalDependencies": platforms}
    packages[f"{name}-{version}.tgz"] = tar("package", files | {"package.json": json_of(fields)})
    return packages


def platform(program):
    """Returns the tags of a wheel with this program, the name of its processor in Node.js, and whether it is static."""
    if program[:6] != b"\x7fELF\x02\x01" or (machine := struct.unpack_from("<H", program, 18)[0]) not in PROCESSORS:
        raise ValueError("the program is not for Linux on x86-64 or aarch64")
    processor, cpu = PROCESSORS[machine]
    headers, size, count = *struct.unpack_from("<Q", program, 32), *struct.unpack_from("<HH", program, 54)
    # PT_INTERP names the loader of a dynamic program.
    if all(struct.unpack_from("<I", program, headers + i * size)[0] != 3 for i in range(count)):
        return f"manylinux_2_17_{processor}.musllinux_1_1_{processor}", cpu, True
    minors = [int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)", program)]
    if not minors:
        raise ValueError("the program is neither static nor for glibc")
    return f"manylinux_2_{max(minors)}_{processor}", cpu, False


def wheel(name, about, tags, program, licences):
    """Returns a wheel: https://packaging.python.org/en/latest/specifications/binary-distribution-format/"""
    metadata = f"""\
Metadata-Version: 2.4
Name: {about["name"]}
Version: {name.split("-")[1]}
Summary: {about["description"]}
License-Expression: {about["license"]}
Requires-Python: >=3.10
"""
    metadata += "".join(f"License-File: {licence}\n" for licence in licences)
    head = "Wheel-Version: 1.0\nGenerator: petstore\nRoot-Is-Purelib: false\n"
    info = f"{name}.dist-info"
    files = tree("python") | {
        f"{name}.data/scripts/petstore": program,
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": (head + "".join(f"Tag: py3-none-{tag}\n" for tag in tags.split("."))).encode(),
        f"{info}/entry_points.txt": b"[pytest11]\npetstore = petstoretest.plugin\n",
        **{f"{info}/licenses/{licence}": text for licence, text in licences.items()},
    }
    record = ""
    for file, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        record += f"{file},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file, data in files.items():
            entry = zipfile.ZipInfo(file)
            entry.external_attr = (stat.S_IFREG | mode(data)) << 16
            packed.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def tar(folder, files):
    archive = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=archive, mode="wb", mtime=0, compresslevel=6) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as packed,
    ):
        for file, data in files.items():
            entry = tarfile.TarInfo(f"{folder}/{file}")
            entry.size, entry.mode = len(data), mode(data)
            packed.addfile(entry, io.BytesIO(data))
    return archive.getvalue()


def mode(data):
    return 0o755 if data.startswith(b"\x7fELF") else 0o644


def tree(language):
    """Returns the files in a folder beside this one, by their paths there."""
    folder = REPOSITORY / "clients" / language
    files = sorted(file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def json_of(value):
    return f"{json.dumps(value, indent=2)}\n".encode()


if __name__ == "__main__":
    main()
