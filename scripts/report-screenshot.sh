#!/bin/sh
# Makes docs/report.png, the picture in the README: the top of a report of a made-up training run. Needs Chromium.
set -eu
cd "$(dirname "$0")/.."
cargo build -q --release -p cachealloc-cli
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 scripts/report_snapshots.py "$folder/train.pickle" --steps 16 --rank 0
target/release/cachealloc report "$folder/train.pickle" -o "$folder/train.html"
PYTHONPATH=scripts PYTHONDONTWRITEBYTECODE=1 python3 - "$folder/train.html" docs/report.png <<'PY'
import sys
import chromium
path = chromium.find() or sys.exit('report-screenshot: no Chromium here (apt-get install chromium, or CHROMIUM=path)')
with chromium.Browser(path) as browser:
    browser.size(900, 1010)
    browser.scheme('light')
    browser.open(sys.argv[1])
    browser.until("document.documentElement?.dataset.ready === 'yes'", 'the report does not get ready')
    # Only Python's frames, and the tooltip of one block.
    browser.run("""(() => {
        const frames = document.getElementById('flame-frames');
        frames.value = 'python';
        frames.dispatchEvent(new Event('change'));
    })()""")
    browser.mouse('mouseMoved', 250, 640)
    browser.run('new Promise(done => setTimeout(done, 300))')
    browser.picture(sys.argv[2])
PY
echo "report-screenshot: docs/report.png, $(wc -c <docs/report.png) bytes"
