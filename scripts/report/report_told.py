"""The checks of test.py that compare the page with the commands and with the snapshot itself."""
import json
import re


def sums(snapshot):
    """Returns peak, end and number of allocations of the only device, independently of the report."""
    alive, peak, count, blocks = 0, 0, 0, {}
    for entry in snapshot['device_traces'][0]:
        if entry['action'] == 'alloc':
            blocks[entry['addr']] = entry['size']
            alive, count = alive + entry['size'], count + 1
        elif entry['action'] == 'free_completed':
            alive -= blocks.pop(entry['addr'])
        peak = max(peak, alive)
    return peak, alive, count


def test_amounts(page, rows):
    """Amounts have the format of the command: the rows of its test (src/text/tests)."""
    written = page.run(f'''{json.dumps([(kind, int(number)) for kind, number, _ in rows])}.map(([kind, number]) => ({{
        bytes: bytes_text, count: count_text, blocks: number => plural(number, 'block'), 'time of us': time_text,
        'share of 1000000': number => share_text(number, 1e6)}})[kind](number))''')
    for (kind, number, wanted), text in zip(rows, written, strict=True):
        page.check(text == wanted, f'{kind} {number}: {text!r}, and the command writes {wanted!r}')


def test_numbers(page, snapshot):
    peak, end, count = sums(snapshot)
    shown = page.run('(({story}) => [story.total[story.peak], story.total[story.events], story.allocations[story.events]])(report)')
    page.check(shown == [peak, end, count], f'peak, end and allocations are {shown}, not {[peak, end, count]}')
    for library in ('site', 'library'):
        page.pick('#timeline select', library)
        totals = page.run('''(({story, timeline}) => [0, story.peak, story.events >> 1, story.events].map(moment =>
            [story.total[moment], timeline.groups.at(moment).reduce((sum, bytes) => sum + bytes, 0)]))(report)''')
        page.check(all(total == bands for total, bands in totals), f'bands by {library} add up to others: {totals}')
    page.pick('#timeline select', 'site')
    flame = page.run('report.flame.sums[0]')
    page.check(flame == peak, f'the flame graph shows {flame}')
    segments = sum(segment['total_size'] for segment in snapshot['segments'])
    reserved = page.run('report.story.reserved[report.story.events]')
    page.check(reserved == segments, f'{reserved} are reserved at the end, not {segments}')
    page.check('when the snapshot was taken' in page.text('#segments-text'), 'at first the segments are not those of the end')
    ooms = sum(entry['action'] == 'oom' for entry in snapshot['device_traces'][0])
    page.check(page.run("document.querySelectorAll('#ooms h3').length") == ooms, f'not {ooms} are out of memory')


AMOUNT = r'\d[\d,.]* (?:[KMGT]iB|B|%)'


def test_commands(page, printed, as_text):
    """Each amount in the sentences and tables is one that a command prints. `printed(moment)` returns all their output; `as_text` formats bytes."""
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.run("document.querySelectorAll('button').forEach(each => /^Show more/.test(each.textContent) && each.click())")
    failed = page.run('report.story.ooms.map(oom => oom.event + 1)')
    known = set()
    for text in printed(failed):
        known |= set(re.findall(AMOUNT, text))
        known |= set(as_text(sorted({int(number) for number in re.findall(r'"\w*bytes":\s*(\d+)', text)})))
    for part in ('facts', 'findings', 'ooms', 'legend', 'sites', 'waste', 'segments-text', 'fit', 'compare'):
        shown = set(re.findall(AMOUNT, page.run(f"document.getElementById('{part}').innerText"))) - {'0 B', '100.00 %'}
        page.check(len(shown) > 2, f'{part} shows the amounts {shown}')
        page.check(shown <= known, f'no command prints {sorted(shown - known)} of {part}')


def test_fit(page, fits):
    """The table of smaller devices is that of the command, row by row."""
    for device, fit in enumerate(fits):
        sets = page.run(f'''[...document.querySelectorAll('#fit table[aria-label="Sets of options"]')[{device}].rows].slice(1)
            .map(row => [...row.cells].map(cell => cell.textContent))''')
        least = lambda tried, key: f"{tried[key]['bytes'] >> 20:,} MiB" if tried[key] else '-'
        wanted = [[tried['options'] or 'the default options', least(tried, 'least_limit'), least(tried, 'least_device')] for tried in fit['sets']]
        page.check([row[:3] for row in sets] == wanted, f'the sets are {sets}, not {wanted}')
        calls = [f"{tried['driver_calls']:,}" if tried['completes'] else '-' for tried in fit['sets']]
        page.check([row[6] for row in sets] == calls, f'the calls are {sets}, not {calls}')
        said = page.text('#fit')
        page.check(all(f'unknown: {unknown}' in said for unknown in fit['unknowns']), f'not all that is unknown is in {said}')
        verdict = {'fits': 'fits within', 'cannot_fit': 'cannot fit within', 'fits_with_none': 'does not fit within', None: ''}[fit['verdict']]
        page.check(f'the run {verdict}' in page.text('#findings') or verdict == '', f'the findings lack that it {verdict}')
    page.run("document.querySelector('nav a[href=\\'#fit\\']').click()")
    page.check(page.run("document.getElementById('fit').getBoundingClientRect().top < 100"), 'the link does not lead to it')


def test_account(page, explained):
    """The breakdown of the device memory equals the output of the command line by line, and the link leads to it."""
    shown = page.run("""[...document.querySelectorAll('#account caption, #account tr:has(td), #account p.soft')]
        .map(one => (one.cells ? [...one.cells] : [one]).map(cell => cell.textContent).join(' '))""")
    lines = lambda texts: [' '.join(text.split()) for text in texts if text]
    wanted = [line for line in lines(explained.splitlines()) if not line.startswith('BYTES ')]
    page.check(lines(shown) == wanted, f'the account is {lines(shown)}, not {wanted}')
    page.run("document.querySelector('nav a[href=\\'#account\\']').click()")
    page.check(page.run("document.getElementById('account').getBoundingClientRect().top < 100"), 'the link does not lead to the account')


def test_told(page, told):
    """Findings, failed allocations, passes, long-held memory and neighbours of free pieces equal the output of the command."""
    found = page.run("[...document.querySelectorAll('#findings li')].map(item => item.firstChild.textContent.trim())")
    page.check(found == told['findings'], f'the findings are {found}, not {told["findings"]}')
    if not told['devices']:
        return
    device, = told['devices']
    page.run('report.timeline.choose_moment(report.story.events)')
    page.frame()
    failed, passes, beside, *held = page.run('''(({story, data, segments, waste}) => [
        story.ooms.map(({event, requested, free}) => [story.time_of(event + 1), requested, free, story.reserved[event + 1], story.total[event + 1]]),
        story.passes.map(({begin, end, range, grew}) => [data.strings[range], story.time_of(Math.min(begin + 1, end)),
            story.time_of(end) - story.time_of(Math.min(begin + 1, end)), grew]),
        segments.between.table.rows.map(({beside, pieces, blocks, bytes}) => [beside, pieces, blocks, bytes]),
        ...[waste.leaks, waste.early, waste.late].map(({table}) =>
            table.rows.map(({bytes, blocks, first, last, freed}) => [bytes, blocks, first, last, freed])),
    ])(report)''')
    wanted = [[each[key] for key in ('since_start_us', 'requested_bytes', 'device_free_bytes', 'reserved_bytes', 'live_bytes')]
              for each in device['failed_allocations']]
    page.check(failed == wanted, f'failed allocations are {failed}, not {wanted}')
    test_told_of_failed(page, device)
    wanted = [[each['range'], one['since_start_us'], one['length_us'], one['grew_bytes']] for each in device['ranges'] for one in each['passes']]
    page.check(sorted(passes) == sorted(wanted), f'the passes are {passes}, not {wanted}')
    wanted = [[each[key] for key in ('free_bytes', 'free_pieces', 'blocks', 'block_bytes')] for each in device['beside_free']]
    page.check(sorted(beside) == sorted(wanted), f'beside free pieces there are {beside}, not {wanted}')
    for what, rows in zip(('held_at_end', 'early', 'late'), held, strict=True):
        times = ('first_us', 'last_us', 'freed_us')
        wanted = [[each['bytes'], each['blocks'], *(-1 if each[key] is None else each[key] for key in times)] for each in device[what]]
        page.check(sorted(rows) == sorted(wanted), f'{what} is {rows}, not {wanted}')


def test_told_of_failed(page, device):
    """The free pieces at each failed allocation, and the blocks next to them, equal the output of the command."""
    if not (known := [each['inside'] for each in device['failed_allocations'] if each['inside']]):
        return
    shown = page.run(f'''report.story.ooms.slice(0, {len(known)}).map(oom => {{
        report.segments.choose_moment(oom.event + 1);
        const sizes = new Map();
        report.segments.shown.forEach(({{blocks, first, end}}) => {{
            for (let block = first; block < end; block++) {{
                if (blocks.state[block] === FREE) {{
                    sizes.set(blocks.bytes[block], (sizes.get(blocks.bytes[block]) ?? 0) + 1);
                }}
            }}
        }});
        const beside = report.segments.between.table.rows.map(({{beside, pieces, blocks, bytes}}) => [beside, pieces, blocks, bytes]);
        const waste = report.segments.shown.reduce((sum, segment) => sum + segment.waste, 0);
        return [report.segments.shown.length, waste, [...sizes].sort((left, right) => right[0] - left[0]), beside, oom.why];
    }})''')
    page.run('report.segments.choose_moment(report.story.events)')
    for inside, (segments, waste, sizes, beside, why) in zip(known, shown, strict=True):
        wanted = [inside['segments'], inside['stuck_bytes'], [[each['bytes'], each['count']] for each in inside['free_sizes']],
                  sorted([each[key] for key in ('free_bytes', 'free_pieces', 'blocks', 'block_bytes')] for each in inside['beside_free'])]
        found = [segments, waste, sizes, sorted(beside)]
        page.check(found == wanted, f'at a failed allocation there are {found}, not {wanted}')
        page.check(why.startswith('An allocation of '), f'why the free memory did not help: {why!r}')
