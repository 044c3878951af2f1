"""Checks a wheel against its format: https://packaging.python.org/specifications/binary-distribution-format/"""

import base64
import csv
import email.parser
import hashlib
import io
import re
import sys
import zipfile

path = sys.argv[1]
name, version, *tags = re.fullmatch(r".*/(.*)-(.*)-(.*)-(.*)-(.*)\.whl", path).groups()
wheel = zipfile.ZipFile(path)
assert wheel.testzip() is None
names = wheel.namelist()
assert len(names) == len(set(names)), names
info = f"{name}-{version}.dist-info/"

# RECORD has each file once, with size and digest; itself without.
rows = list(csv.reader(io.StringIO(wheel.read(info + "RECORD").decode())))
assert sorted(row[0] for row in rows) == sorted(names)
for name, digest, size in rows:
    if name == info + "RECORD":
        assert (digest, size) == ("", "")
        continue
    packed = wheel.read(name)
    wanted = base64.urlsafe_b64encode(hashlib.sha256(packed).digest()).decode().rstrip("=")
    assert (digest, size) == ("sha256=" + wanted, str(len(packed))), name

parse = email.parser.Parser().parsestr
about = parse(wheel.read(info + "WHEEL").decode())
assert about["Wheel-Version"] == "1.0" and about["Root-Is-Purelib"] == "false"
assert about.get_all("Tag") == ["-".join(tags)], about.get_all("Tag")

metadata = parse(wheel.read(info + "METADATA").decode())
assert metadata["Name"] == "cachealloc" and metadata["Version"] == version
assert metadata["License"] == "MIT OR Apache-2.0" and metadata["Requires-Python"] == ">=3.8"
assert metadata["Summary"] and "Requires-Dist" not in metadata
for licence in metadata.get_all("License-File"):
    assert len(wheel.read(f"{info}licenses/{licence}")) > 1000, licence
readme = metadata.get_payload()
assert readme.startswith("# cachealloc"), readme[:80]
links = re.findall(r"\]\(([^)]*)\)", readme)
assert all(link.startswith("http") for link in links), links

# Programs may be executed, and nothing else.
programs = [name for name in names if wheel.getinfo(name).external_attr >> 16 == 0o100755]
assert [name.rsplit("/", 1)[1] for name in programs] == ["libcachealloc.so", "cachealloc"], programs
assert all(wheel.getinfo(name).external_attr >> 16 in (0o100755, 0o100644) for name in names)
assert "cachealloc/py.typed" in names
