"""Checks of report-test.py for each view of a report."""
import json
import re

import report_snapshots


def sums(snapshot):
    """Peak, end and number of allocations of the only device, by other means than the report's."""
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


def test_timeline(page):
    browser = page.browser
    box = page.box('#timeline canvas')
    page.check(page.painted('#timeline canvas') > 8, 'the timeline is blank')
    middle, low = box['x'] + box['width'] * 0.6, box['y'] + box['height'] * 0.8
    browser.mouse('mouseMoved', middle, low)
    page.frame()
    tip = page.text('#tip')
    page.check(not page.run("document.getElementById('tip').hidden"), 'hovering the timeline says nothing')
    for wanted in ('live ', 'reserved ', 'A block of ', 'allocated at', '.py:'):
        page.check(wanted in tip, f'the timeline says nothing of {wanted!r}: {tip}')
    span = lambda: page.run('report.timeline.view[1] - report.timeline.view[0]')
    whole = span()
    scrolled = page.run('scrollY')
    browser.mouse('mouseWheel', middle, low, deltaX=0, deltaY=-100)
    browser.until(f'scrollY < {scrolled}', 'the wheel does not scroll the page')
    page.check(span() == whole, 'the wheel zooms without a modifier')
    box = page.box('#timeline canvas')
    middle, low = box['x'] + box['width'] * 0.6, box['y'] + box['height'] * 0.8
    browser.mouse('mouseWheel', middle, low, deltaX=0, deltaY=-400, modifiers=CTRL)
    page.frame()
    zoomed = span()
    page.check(zoomed < whole * 0.7, f'the wheel does not zoom with Ctrl: {whole} -> {zoomed}')
    for button, wanted in (('in', lambda now: now < zoomed), ('out', lambda now: abs(now - zoomed) < 1), ('all', lambda now: now == whole)):
        page.run(f"document.getElementById('timeline-{button}').click()")
        page.check(wanted(span()), f'the button {button} shows {span()}')
    page.run(f'report.timeline.look_at({whole * 0.3}, {zoomed})')
    page.run("document.getElementById('timeline-right').click()")
    page.check(page.run('report.timeline.view[0]') > whole * 0.3, 'the button for later does not move')
    page.box('#timeline canvas')
    browser.drag((middle - 100, low), (middle + 50, low))
    page.frame()
    page.check(span() < zoomed * 0.3, f'dragging does not zoom: {zoomed} -> {span()}')
    page.run("document.querySelector('#timeline canvas').focus({preventScroll: true})")
    before = page.run('report.timeline.view[0]')
    browser.key('ArrowRight')
    page.check(page.run('report.timeline.view[0]') > before, 'the arrow does not move')
    before = span()
    browser.key('+')
    page.check(span() < before, 'the key + does not zoom')
    browser.key('0')
    page.check(span() == whole, 'the key 0 does not show all')
    browser.click(middle, low)
    page.frame()
    page.check('Chosen: ' in page.text('#chosen'), 'a click chooses nothing')
    test_held(page, middle, low)
    page.check(page.run("document.getElementById('flame-what').value") == 'chosen', 'the flame graph does not follow')
    chosen = page.run('[report.flame.sums[0], report.story.total[report.timeline.chosen]]')
    page.check(chosen[0] == chosen[1], f'the flame graph shows {chosen}')
    page.check('chosen time' in page.text('#compare-to'), 'the chosen time cannot be compared')


CTRL = 2


def test_held(page, x, y):
    """A click pins the selection: the mouse may leave, the text can be copied, Escape or another click unpins it."""
    browser = page.browser
    shown = lambda: page.run("[!tip.box.hidden, tip.held, document.querySelectorAll('#tip button').length]")
    page.check(shown() == [True, True, 2], f'a click does not hold: {shown()}')
    said = page.text('#tip')
    browser.mouse('mouseMoved', x - 200, y - 60)
    page.frame()
    page.check(page.text('#tip') == said and shown()[0], 'what is held changes with the mouse')
    page.run("document.querySelector('#tip button').click()")
    browser.until("document.querySelector('#tip button').textContent === 'Copied'", 'the text is not copied')
    browser.key('Escape')
    page.check(shown()[:2] == [False, False], 'Escape does not let go')
    browser.click(x, y)
    page.frame()
    browser.click(2, 2)
    page.check(shown()[:2] == [False, False], 'a click elsewhere does not let go')
    browser.click(x, y)
    page.frame()
    browser.key('Escape')


def test_bands(page, least):
    """At the peak, the named bands cover nearly everything; the rest can be selected."""
    share = """(() => { const {groups, story} = report.timeline; const sums = groups.at(story.peak);
        return [1 - sums[groups.named] / story.total[story.peak], groups.named, groups.others]; })()"""
    for kind in ('site', 'function', 'library', 'thread', 'stream', 'range', 'pool', 'kind'):
        page.pick('#timeline select', kind)
        named, count, others = page.run(share)
        page.check(named >= 0.95, f'by {kind}, {count} bands are {named} of the peak')
        rows = page.run('[...Array(report.story.rows).keys()].every(row => report.timeline.groups.of_row(row) <= report.timeline.groups.named)')
        page.check(rows, f'by {kind}, a block has no band')
    page.pick('#timeline select', 'site')
    named, count, others = page.run(share)
    page.check(count >= least, f'{count} bands')
    if others:
        page.check(page.run("!document.getElementById('others-box').hidden"), 'the others cannot be chosen')
        page.run("document.querySelector('#others button').click()")
        page.check(page.run(share)[1:] == [count + 1, others - 1], f'one of the others has no band: {page.run(share)}')
        page.check(page.painted('#timeline canvas') > 8, 'the timeline is blank')


def test_blocks(page, find):
    """Zoomed in, each block has an outline, and can be chosen by mouse and keyboard; the chosen one is marked in the segments, too."""
    shown = lambda: page.run('[report.timeline.has_blocks, report.timeline.block, report.timeline.hovered]')
    page.run('report.timeline.set_axis("order")')
    page.run('report.timeline.look_at(200, 60)')
    page.frame()
    page.check(shown() == [True, -1, -1], f'zoomed in, the blocks are {shown()}')
    page.check(page.run('''(({timeline, story}) => {
        const moments = timeline.columns();
        const rows = new Set(rows_in_view(timeline, moments));
        return moments.every(moment => { let all = true; story.each_alive(moment, row => { all &&= rows.has(row); }); return all; });
    })(report)'''), 'a block of the picture is missing')
    box = page.box('#timeline canvas')
    at = (box['x'] + box['width'] * 0.6, box['y'] + box['height'] * 0.8)
    page.browser.mouse('mouseMoved', *at)
    page.frame()
    _, _, hovered = shown()
    name = page.run(f'report.story.name_of({max(0, hovered)})')
    page.check(hovered >= 0 and name in page.text('#tip'), f'the block {name} under the mouse is not told: {page.text("#tip")}')
    page.browser.click(*at)
    page.frame()
    page.check(shown()[1] == hovered and name in page.text('#chosen'), f'a click chooses {shown()[1]}, not {hovered}')
    page.check(page.run('report.segments.marked?.address === report.story.address_of(report.timeline.block)'), 'it is not marked in the segments')
    page.check(find(name)['block']['requested_bytes'] == page.run('report.story.bytes[report.timeline.block]'), 'the command finds another block')
    page.browser.key('Escape')
    rows = page.run('stacked_rows(report.timeline, report.timeline.chosen)')
    page.run("document.querySelector('#timeline canvas').focus({preventScroll: true})")
    for key, step in (('ArrowUp', 1), ('ArrowDown', -1), ('ArrowDown', -1)):
        before = rows.index(shown()[1])
        page.browser.key(key)
        page.check(shown()[1] == rows[before + step], f'{key} goes from {before} to {rows.index(shown()[1])}')
    page.check(page.run('report.story.name_of(report.timeline.block)') in page.text('#tip'), 'the keyboard tells nothing of the block')
    height = lambda: page.run('report.timeline.tall ? report.timeline.tall[1] - report.timeline.tall[0] : report.timeline.highest')
    whole = height()
    for half in (whole / 2, whole / 4):
        page.run("document.getElementById('timeline-taller').click()")
        page.frame()
        page.check(abs(height() - half) < 2, f'the height is {height()}, not {half}')
    low, high = page.run('[report.timeline.tall, report.timeline.middle_of_block()]')[0]
    page.check(low <= page.run('report.timeline.middle_of_block()') <= high, 'the chosen block is out of sight')
    page.check(page.painted('#timeline canvas') > 4, 'the taller timeline is blank')
    page.run("document.getElementById('timeline-all').click()")
    page.run('report.timeline.set_axis("time")')
    page.check(height() == whole or page.run('report.timeline.tall === null'), 'the whole height does not come back')
    for kind, parts in (('thread', ['<module> train.py']), ('pool', ['default pool', 'private pool 1.0']), ('kind', ['never freed', 'temporary'])):
        page.pick('#timeline select', kind)
        names = page.run('report.timeline.groups.names')
        page.check(all(part in names for part in parts), f'by {kind}, the bands are {names}')
    page.pick('#timeline select', 'site')


def test_events(page, find):
    """The list shows what the command finds, and selecting a line shows the segments at that time. `find(address, entry)`."""
    page.run("document.querySelector('#events-box').scrollIntoView({block: 'center'})")
    count = page.run('report.story.events')
    page.check(page.text('#events-count').startswith(f'{count:,} event'), page.text('#events-count'))
    page.check(3 < page.run("document.querySelectorAll('.event').length") < 60, 'the list has too few lines, or all of them')
    # These histories contain only entries that the page counts, so its events are the entries.
    told = lambda moment: page.run(f'(event => ({{...event, bytes: event.bytes}}))(event_of(report.story, {moment} - 1))')
    for moment in (2, count // 2, count - 1, count):
        page.run(f'report.timeline.choose_moment({moment})')
        page.frame()
        event = told(moment)
        chosen = page.run("document.querySelector('.event[aria-selected=true]')?.innerText.split('\\n').map(part => part.trim()).filter(Boolean)")
        page.check(chosen and chosen[:2] == [event['action'], event['name']], f'at {moment} the chosen line is {chosen}, not {event}')
        if event['action'] in ('alloc', 'free'):
            block = find(event['name'], None)['block']
            page.check((block['name'], block['requested_bytes']) == (event['name'], event['bytes']), f'{event} is {block}')
            frames = page.run("[...document.querySelectorAll('#events-detail .frames:first-of-type li')].length")
            page.check(frames == len(block['stack']), f'{frames} frames of {len(block["stack"])}')
        page.check(page.run('report.segments.moment') == moment, 'the segments are not those of the event')
    # By the keyboard, one after the other.
    page.run("document.querySelector('#events-box').focus()")
    page.browser.key('ArrowUp')
    page.check(page.run('report.timeline.chosen') == count - 1, 'the arrow does not go up')
    page.browser.key('Home')
    page.check(page.run('report.timeline.chosen') == 1, 'Home does not go to the first')
    # An address, a name, a function.
    row = page.run('report.story.row_of_event.findLastIndex(row => row > 0)')
    name = page.run(f'event_of(report.story, {row}).name')
    page.pick('#events-search', name)
    found = page.run('[...report.segments.events.found].map(event => event_of(report.story, event).name)')
    page.check(0 < len(found) < 3 and set(found) == {name}, f'{name} is found as {found}')
    address = int(name[1:].split('_')[0], 16)
    for text in (f'0x{address + 8:x}', f'{address + 8:x}'):
        page.pick('#events-search', text)
        begins = page.run('[...report.segments.events.found].every(event => { const at = event_of(report.story, event); '
                          f'return at.row < 0 || report.story.address_of(at.row) === {address}; }})')
        page.check(begins and page.run('report.segments.events.found.length') > 0, f'{text} is not found')
    page.check(page.run('report.segments.marked.address') == address + 8, 'the address is not marked')
    page.pick('#events-search', 'train.py:102')
    page.check(page.run('report.segments.events.found.length') > 3, 'the function is not found')
    page.pick('#events-search', 'nowhere at all')
    page.check(page.text('#events-count').startswith('0 of'), 'nothing is found as something')
    page.pick('#events-search', '')
    # A block of the picture shows its name and both stacks.
    page.run('report.timeline.choose_moment(report.story.peak)')
    box = page.box('#segments canvas')
    page.browser.click(box['x'] + 230, box['y'] + 6)
    page.frame()
    tip = page.text('#tip')
    page.check('Block at 0x' in tip and ' requested' in tip and 'Segment s' in tip, f'the block says {tip}')
    page.browser.key('Escape')


def test_links(page):
    """A finding links to its subject, and changes nothing else."""
    links = page.run("[...document.querySelectorAll('#findings a')].map(link => link.hash)")
    page.check(len(links) > 3 and '#waste' in links, f'the findings have the links {links}')
    page.pick('#flame-search', 'train')
    for link in links:
        page.run(f'document.querySelector(`#findings a[href="{link}"]`).click()')
        page.frame()
        view = link[1:].split('&')[0]
        page.check(page.run(f"Math.abs(document.getElementById('{view}').getBoundingClientRect().top) < innerHeight"), f'{link} shows something else')
    page.check(page.run('report.timeline.chosen === report.story.peak'), 'the peak is not chosen')
    page.check(page.run("document.getElementById('flame-search').value") == 'train', 'what was searched for is gone')
    page.pick('#flame-search', '')
    page.pick('#sites-search', '')


def test_flame(page):
    browser = page.browser
    page.pick('#flame-what', 'peak')
    page.check(page.painted('#flame canvas') > 4, 'the flame graph is blank')
    colors = page.run('[0, 1].map(python => frame_color(report.data, report.data.frames.python.indexOf(python)))')
    page.check(colors[0] != colors[1], 'Python and native frames look the same')
    box = page.box('#flame canvas')
    at = (box['x'] + box['width'] * 0.2, box['y'] + 18 * 4.5)
    browser.mouse('mouseMoved', *at)
    tip = page.text('#tip')
    page.check('% of all' in tip and '.py:' in tip, f'hovering the flame graph says {tip!r}')
    browser.click(*at)
    page.frame()
    page.check(page.run('report.flame.top') != 0 and page.text('#flame-path') != '', 'a click does not widen')
    browser.key('Escape')
    page.check(page.run('report.flame.top') == 0, 'Escape does not go back')
    browser.key('ArrowDown')
    page.check(page.run('report.flame.focus') != 0, 'the arrow does not go down')
    page.pick('#flame-search', 'MODEL.py')
    page.check('found in' in page.text('#flame-found'), 'searching finds nothing')
    page.pick('#flame-search', '')
    test_folded(page)
    page.pick('#flame-frames', 'all')
    test_inverted(page)
    everything = page.run('report.flame.boxes.length')
    page.pick('#flame-frames', 'python')
    page.check(page.run('report.flame.boxes.length') < everything, 'native frames are not left out')
    page.check(page.run('report.flame.sums[0] === report.story.total[report.story.peak]'), 'bytes are lost with the frames')
    page.pick('#flame-frames', 'all')
    for what in ('end', 'allocated', 'temporary'):
        page.pick('#flame-what', what)
        page.check(page.run('report.flame.sums[0]') > 0, f'nothing is {what}')
    page.pick('#flame-what', 'peak')


def test_folded(page):
    """The default view has Python's frames, and for each native run inside them only the frame that Python called."""
    page.check(page.run("document.getElementById('flame-frames').value") == 'folded', 'native frames are not folded at first')
    paths = page.run('''(({flame, data}) => {
        const paths = [];
        const walk = (node, path) => {
            const longer = node === ROOT || node === flame.no_stack ? path : path + 'np'[data.frames.python[flame.tree.frame[node - 1]]];
            const below = flame.children.get(node) ?? [];
            below.length ? below.forEach(child => walk(child, longer)) : paths.push(longer);
        };
        walk(ROOT, '');
        return paths;
    })(report)''')
    page.check(paths != [] and all(path.rstrip('n') + 'n' == path and 'n' not in path[:-1] for path in paths), f'folded, stacks are {set(paths)}')
    page.check(page.run('report.flame.sums[0] === report.story.total[report.story.peak]'), 'bytes are lost in the fold')


def test_inverted(page):
    """The first rows are allocating frames, with the sums of the stacks that end there; each path is a reversed stack."""
    page.run("document.getElementById('flame-inverted').click()")
    page.frame()
    both = page.run('''(({flame, data, story}) => {
        const {bytes} = story.alive_by_stack(story.peak);
        const wanted = {};
        bytes.forEach((sum, stack) => {
            const path = data.frames_of(stack).slice(0, 3).join(' ');
            if (sum > 0) wanted[path] = (wanted[path] ?? 0) + sum;
        });
        const found = {};
        const walk = (node, path) => (path.length === 3 ? found[path.join(' ')] = flame.sums[node]
            : (flame.children.get(node) ?? []).forEach(child => walk(child, [...path, flame.tree.frame[child - 1]])));
        walk(ROOT, []);
        return [wanted, found];
    })(report)''')
    page.check(both[0] == both[1] and len(both[0]) > 3, f'inverted, the innermost three frames have {both[1]}, not {both[0]}')
    page.check(page.run('report.flame.sums[0] === report.story.total[report.story.peak]'), 'inverted, the sum is another')
    page.check(page.painted('#flame canvas') > 4, 'the inverted flame graph is blank')
    page.run("document.getElementById('flame-inverted').click()")
    page.frame()


AMOUNT = r'\d[\d,.]* (?:[KMGT]iB|B|%)'


def test_commands(page, printed, as_text):
    """Each amount of the sentences and tables is one that a command prints. `printed(moment)` is all that they print, `as_text` writes bytes."""
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


def test_tables(page):
    rows = lambda: page.run("document.querySelectorAll('#sites tbody tr').length")
    everything = rows()
    page.pick('#sites-search', 'train.py')
    page.check(0 < rows() < everything and ' of ' in page.text('#sites-count'), 'the search does not narrow')
    page.pick('#sites-search', '')
    page.run("document.querySelector('#sites th:last-child button').click()")
    sorted_ = page.run("document.querySelector('#sites th:last-child').getAttribute('aria-sort')")
    page.check(sorted_ == 'descending', f'the table is sorted {sorted_}')
    page.run("document.querySelector('#sites tbody tr').click()")
    page.check('.py:' in page.text('#sites .frames'), 'a row does not open')
    page.check('were live when' in page.text('#leaks-text'), 'the leak is not named')
    page.check('train.py:102' in page.text('#waste .table'), 'the site of the leak is not named')
    page.check('were temporary (freed after' in page.text('#temporary-text'), 'temporaries are not named')
    page.check(page.text('#more-waste') != '', 'early and late are missing')
    page.check('free inside segments' in page.text('#segments-text'), 'fragmentation is not named')
    page.check(page.painted('#segments canvas') > 5, 'the segments are blank')
    box = page.box('#segments canvas')
    page.browser.mouse('mouseMoved', box['x'] + 250, box['y'] + 6)
    page.check('Segment s' in page.text('#tip') and 'pool' in page.text('#tip'), f'a segment says {page.text("#tip")!r}')
    page.check('keeps growing' in page.text('#findings'), 'the growing site is not found')


def test_sizes(page, out):
    """Nothing overflows the page, in either colour scheme. Saves pictures for review."""
    for scheme in ('light', 'dark'):
        page.browser.scheme(scheme)
        for width in (1280, 400):
            page.browser.size(width, 900)
            page.run('scrollTo(0, 0)')
            page.frame()
            wide = page.run('document.documentElement.scrollWidth')
            page.check(wide <= width, f'it is {wide} wide in a window of {width}')
            page.check(page.painted('#timeline canvas') > 8, f'the timeline is blank at {width}, {scheme}')
            if out:
                height = page.run('document.documentElement.scrollHeight')
                clip = {'x': 0, 'y': 0, 'width': width, 'height': height, 'scale': 1}
                page.browser.picture(out / f'{page.name}-{width}-{scheme}.png', clip=clip, captureBeyondViewport=True)
    page.browser.scheme('light')
    page.browser.size(1280, 900)


def test_hostile(page):
    counts = page.run("[document.scripts.length, document.images.length, document.querySelectorAll('script, img, link, iframe').length]")
    page.check(counts == [3, 0, 3], f'names became elements: {counts}')
    page.check(page.run('document.title') == 'hostile.pickle', 'a name took the title')
    page.pick('#flame-what', 'end')
    shown = page.run("document.body.innerText + [...document.querySelectorAll('[title]')].map(one => one.title)")
    page.check(not any(letter in shown for letter in '\u202e\u200b\u0007\u001b'), 'letters that steer are shown')
    for name in report_snapshots.HOSTILE[:-1]:
        page.pick('#flame-search', name)
        page.check('found in' in page.text('#flame-found') and 'found in 0.00 %' not in page.text('#flame-found'), f'{name!r} is not found')


def test_ranks(page):
    page.check('node7' in page.text('#facts') and '4711, 4712' in page.text('#facts'), f'whose they are: {page.text("#facts")}')
    page.check(page.run('document.title') == 'train.py', 'the program is not named')
    page.check(page.run("!document.getElementById('pick').hidden"), 'there is no selector of ranks')
    whole = page.run('report.story.total[report.story.events]')
    ranges = lambda: page.run("['#ranges', '#ranges > p:nth-of-type(2)', '#lane'].map(each => !document.querySelector(each).hidden)")
    page.check(ranges() == [True, True, False], f'of several ranks the section of ranges, its hint and the lane are {ranges()}')
    parts = []
    for value in page.run("[...document.querySelectorAll('#pick option')].map(option => option.value).slice(1)"):
        page.pick('#pick select', value)
        parts.append(page.run('report.story.total[report.story.events]'))
        page.check(ranges() == [True, False, True], f'of one rank they are {ranges()}')
    page.check(len(parts) == 2 and sum(parts) == whole, f'ranks do not add up: {parts} and {whole}')
    page.pick('#pick select', 'all')
    page.check(page.run("document.getElementById('compare-from').value") == 'file0', 'files are not compared')


def test_moments(page):
    page.check(page.run("document.querySelector('#pick select').value") != 'all', 'moments of one process are added up')
    text = page.text('#compare-text')
    page.check('before' in text and ('more' in text or 'less' in text), f'nothing is compared: {text}')
    page.check('train.py:102' in page.text('#compare table'), 'what grew is not named')


def test_shortages(page, count):
    """Every failed allocation has a mark, also the last; no label covers another; all of them can be listed."""
    marks = page.run('oom_marks(report.timeline).map(mark => [mark.x, mark.count])')
    page.check(sum(number for _, number in marks) == count, f'marks of {sum(number for _, number in marks)} of {count} failed allocations')
    labels = lambda: page.run('''(() => {
        const {pen, width} = report.timeline.surface;
        return oom_labels(pen, oom_marks(report.timeline), width).map(({left, wide, count}) => [left, left + wide, count, width]);
    })()''')
    for width in (1280, 390):
        page.browser.size(width, 900)
        page.frame()
        found = labels()
        page.check(sum(label[2] for label in found) == count, f'labels of others than {count} at {width}: {found}')
        page.check(all(right <= whole and left >= 0 for left, right, _, whole in found), f'a label is cut at {width}: {found}')
        page.check(all(one[1] < other[0] for one, other in zip(found, found[1:])), f'labels overlap at {width}: {found}')
    page.browser.size(1280, 900)
    page.frame()
    red = page.run('''(() => {
        const {canvas} = report.timeline.surface;
        const copy = document.createElement('canvas');
        [copy.width, copy.height] = [canvas.width, canvas.height];
        const pen = copy.getContext('2d', {willReadFrequently: true});
        pen.drawImage(canvas, 0, 0);
        return oom_marks(report.timeline).map(({x}) => {
            const [red, green, blue] = pen.getImageData(x, TOP - 1, 1, 1).data;
            return red > 120 && green < 90 && blue < 90;
        });
    })()''')
    page.check(all(red), f'{red.count(False)} of {len(red)} marks are not drawn')
    page.run('report.timeline.zoom(0.05, report.story.time_of(report.story.ooms.at(-1).event + 1))')
    page.frame()
    near = page.run('oom_marks(report.timeline).at(-1).oom.event === report.story.ooms.at(-1).event')
    page.check(near, 'zoomed in, the last one has no mark')
    page.run('report.timeline.show_all()')
    page.frame()
    box = page.box('#timeline canvas')
    page.browser.mouse('mouseMoved', box['x'] + page.run('oom_marks(report.timeline).at(-1).x'), box['y'] + 200)
    page.frame()
    page.check('failed' in page.text('#tip'), f'hovering a mark says nothing of it: {page.text("#tip")}')
    listed = lambda: page.run("document.querySelectorAll('#ooms h3').length")
    before = listed()
    page.run("document.querySelector('#ooms > button').click()")
    page.check(listed() == 2 * before, f'more does not show more: {before} and {listed()}')


def test_ranges(page, snapshot):
    """Each pass through a range and its growth, counted again; the lane shows them with tooltips; the table opens."""
    alive, wanted = 0, []
    passes = {}
    for entry in snapshot['device_traces'][0]:
        names = entry.get('user_metadata', '').split('/')
        for depth in range(len(names)):
            name = '/'.join(names[:depth + 1])
            if name and entry.get('range_entered') and depth + 1 >= entry['range_entered']:
                passes[name] = len(wanted)
                wanted.append([name, alive, alive])
        alive += {'alloc': entry['size'], 'free_completed': -entry['size']}.get(entry['action'], 0)
        for name in ('/'.join(names[:depth + 1]) for depth in range(len(names))):
            if name:
                wanted[passes[name]][2] = alive
    wanted = [[name, after - before] for name, before, after in wanted]
    found = page.run('report.story.passes.map(({range, grew}) => [report.data.strings[range], grew])')
    page.check(len(wanted) == 1 + 3 * 12 and found == wanted, f'the passes are {found}, not {wanted}')
    page.pick('#timeline select', 'range')
    page.check(set(page.run('report.timeline.groups.names')) >= {'load', 'step/forward', 'step/backward'}, 'the timeline does not stack by range')
    page.pick('#timeline select', 'site')
    rows = dict(page.run("report.ranges.table.rows.map(row => [row.name, [row.times, row.sum]])"))
    steps = [grew for name, grew in wanted if name == 'step']
    page.check(rows.get('step') == [12, sum(steps)] and len(rows) == 4, f'the table of ranges has {rows}')
    page.run("[...document.querySelectorAll('#ranges tbody tr')].find(row => row.cells[0].textContent === 'step').click()")
    page.check(page.run("document.querySelectorAll('#ranges td.stacks tbody tr').length") == 12, 'a range does not open')
    page.check('+4.00 MiB' in page.text('#ranges td.stacks tbody'), f'a step grows by {page.text("#ranges td.stacks tbody")}')
    page.run("document.querySelector('#ranges td.stacks button:not(th button)').click()")
    page.frame()
    page.check(page.run('report.timeline.chosen === report.story.passes.find(pass => report.data.strings[pass.range] === "step").end'),
               'the end of a step is not shown')
    page.check(page.painted('#lane canvas') > 3, 'the lane is blank')
    for axis in ('order', 'time'):
        page.run(f'report.timeline.set_axis("{axis}")')
        page.frame()
        box = page.box('#lane canvas')
        x = page.run('report.timeline.lane.edges(report.timeline.lane.passes.filter(pass => pass.depth === 0).at(-1))[0]')
        page.browser.mouse('mouseMoved', box['x'] + x + 3, box['y'] + 5)
        tip = page.text('#tip')
        page.check('step, 12 of 12' in tip and f'grew by +{steps[-1] / 2**20:.2f} MiB' in tip, f'by {axis} the lane says {tip!r}')
    page.browser.click(box['x'] + x + 3, box['y'] + 5)
    page.frame()
    page.check(page.run('report.timeline.chosen === report.timeline.lane.passes.filter(pass => pass.depth === 0).at(-1).end'), 'the lane chooses nothing')
    page.browser.mouse('mouseMoved', 1, 1)


def test_reserved(page, moments):
    """The segments and their blocks at every moment are those of the allocator that made the file."""
    page.check(page.run('report.story.events') == len(moments) - 1, f'{page.run("report.story.events")} events, not {len(moments) - 1}')
    shown = page.run('''Array.from({length: report.story.events + 1}, (_, moment) => {
        const segments = report.segments.reserved[0].at(moment);
        return segments.map(({address, bytes, blocks, first, end}) => [address, bytes,
            Array.from({length: end - first}, (_, at) => ['bytes', 'requested', 'state'].map(column => blocks[column][first + at]))]);
    })''')
    # The requested size is meaningless for a free block.
    asked = lambda there: [[address, size, [[bytes_, state and requested, state] for bytes_, requested, state in blocks]]
                           for address, size, blocks in there]
    others = [moment for moment, (found, wanted) in enumerate(zip(shown, moments)) if asked(found) != wanted]
    page.check(others == [], f'the segments are others at {len(others)} of {len(moments)} moments: {others[:5]}')
    for moment in others[:1]:
        print(f'found {asked(shown[moment])}\nwanted {moments[moment]}')
    sums = page.run('''Array.from({length: report.story.events + 1}, (_, moment) => {
        report.segments.choose_moment(moment);
        const sum = key => report.segments.shown.reduce((total, segment) => total + segment[key], 0);
        return [sum('bytes') === report.story.reserved[moment], sum('requested') === report.story.total[moment]];
    })''')
    page.check(all(map(all, sums)), f'sums differ from the timeline: {[moment for moment, both in enumerate(sums) if not all(both)][:9]}')


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


def test_slider(page):
    """The segments follow the timeline, and the timeline the slider; a failed allocation is explained."""
    page.pick('#segments-slider', '900')
    page.frame()
    page.check(page.run('[report.timeline.chosen, report.segments.moment, report.flame.moment]') == [900, 900, 900], 'the slider chooses nothing')
    page.check(' ms after start' in page.text('#segments-when') and 'were in blocks' in page.text('#segments-text'), page.text('#segments-text'))
    page.run('report.timeline.choose_moment(1200)')
    page.frame()
    page.check(page.run("document.getElementById('segments-slider').value") == '1200', 'the slider stays where it was')
    page.run("document.getElementById('segments-failed').click()")
    page.frame()
    page.check(page.run('report.story.ooms.some(oom => oom.event + 1 === report.timeline.chosen)'), 'no failed allocation is chosen')
    wanted = page.run('''(() => {
        const pieces = report.segments.reserved[0].at(report.segments.moment).flatMap(({blocks, first, end}) =>
            blocks.bytes.slice(first, end).filter((_, at) => blocks.state[first + at] === 0));
        return [`in ${pieces.length} pieces`, `the largest ${bytes_text(Math.max(...pieces))}`, `allocation of ${bytes_text(report.segments.failed.requested)} failed`];
    })()''')
    text = page.text('#segments-too-small')
    page.check(all(each in text for each in wanted), f'{text!r} lacks one of {wanted}')
    page.check(page.text('#between td .place') != '', 'what lies between free pieces is not named')
    page.run('report.timeline.choose_moment(report.story.events)')
    page.frame()
    page.check('when the snapshot was taken' in page.text('#segments-text'), 'it does not come back to the end')


def test_between(page):
    """Free bytes next to each call site, counted again by other means."""
    page.run('report.timeline.choose_moment(report.story.ooms[0].event + 1)')
    page.frame()
    both = page.run('''(() => {
        const wanted = {};
        for (const {blocks, first, end} of report.segments.shown) {
            const states = Array.from({length: end - first}, (_, at) => blocks.state[first + at]);
            states.forEach((state, at) => state === 0 && new Set([at - 1, at + 1].filter(near => states[near] > 0)
                .map(near => report.data.stacks.site[blocks.stack[first + near]])).forEach(site => {
                    wanted[site] = (wanted[site] ?? 0) + blocks.bytes[first + at];
                }));
        }
        return [wanted, Object.fromEntries(report.segments.between.table.rows.map(row => [row.site, row.beside]))];
    })()''')
    page.check(both[0] == both[1] and len(both[0]) > 1, f'beside the free pieces: {both}')


def test_address(page):
    """The address holds the state of the page and restores it; an invalid address does no harm."""
    address = lambda: page.run('new Promise(done => setTimeout(() => done(location.hash), 2 * WRITTEN_AFTER_MS))')
    page.run("location.hash = '#timeline'")
    page.check(address() == '#timeline', f'what others left in the address stays: {address()}')
    page.run("document.querySelector('nav a[href=\\'#segments\\']').click()")
    page.run('report.timeline.choose_moment(321)')
    page.pick('#flame-search', 'a&b=<b>é')
    page.pick('#sites-search', 'train')
    page.run("document.getElementById('theme').click()")
    said = address()
    page.check(said == '#segments&theme=dark&at=321&find=a%26b%3D%3Cb%3E%C3%A9&sites=train', f'the address is {said}')
    page.check(page.run("css('--ground')") == '#14171a' and page.text('#theme') == 'Light', 'the button does not make it dark')
    for other in ('#sites', said, '#nothing&at=99999999999&find=%ZZ&theme=<b>&show=<i>', '#flame&at=-1', '#"]', said):
        page.run(f'location.hash = {json.dumps(other)}')
        page.frame()
        address()
    shown = page.run("[report.segments.moment, report.flame.search.value, document.getElementById('sites-search').value, css('--ground')]")
    page.check(shown == [321, 'a&b=<b>é', 'train', '#14171a'], f'the address shows {shown}')
    page.run("document.getElementById('theme').click()")
    page.check(page.run("css('--ground')") == '#f6f7f9', 'the button does not make it light again')
    page.run("location.hash = '#timeline'")
    page.frame()
    address()
    page.browser.scheme('dark')
    page.check(page.run("css('--ground')") == '#14171a', "it does not follow the system's setting")
    page.browser.scheme('light')
    test_states(page, address)


# Each state that a reader can change, with its new value.
STATES = {
    'before': '100', 'at': '321', 'bands': 'library', 'axis': 'order', 'zoom': '50-700', 'flame': 'allocated', 'measure': 'blocks', 'frames': 'all',
    'inverted': 'yes', 'frame': '1', 'event': 'train', 'colour': 'state', 'segments_order': 'address', 'width': 'size', 'from': 'peak', 'to': 'begin', 'by': 'library',
    'sites_order': 'library', 'grew_order': 'name',
}


def test_states(page, address):
    """The address restores every state in a newly opened page, and removes it again."""
    shown = '''[report.compare.earlier, report.timeline.chosen, report.timeline.kind, report.timeline.axis, report.timeline.view.join('-'), report.flame.what,
        report.flame.measure, report.flame.frames, report.flame.inverted, report.flame.top, report.segments.events.search.value, report.segments.kind, report.segments.order, report.segments.scale,
        report.compare.left.select.value, report.compare.right.select.value, report.compare.by.select.value,
        report.sites.table.sort, report.sites.table.ascending, report.compare.table.sort]'''
    usual = page.run(shown)
    page.run('report.timeline.choose_moment(100); report.timeline.choose_moment(321)')
    for text, selector in (('library', '#timeline label:nth-of-type(1) select'), ('order', '#timeline label:nth-of-type(2) select'), ('allocated', '#flame-what'),
                           ('blocks', '#flame label:nth-of-type(2) select'), ('all', '#flame-frames'), ('state', '#segments label:nth-of-type(1) select'),
                           ('train', '#events-search'), ('address', '#segments label:nth-of-type(2) select'), ('size', '#segments label:nth-of-type(3) select'),
                           ('peak', '#compare-from'), ('begin', '#compare-to'), ('library', '#compare label:nth-of-type(3) select')):
        page.pick(selector, text)
    page.run('report.timeline.look_at(50, 650); report.flame.invert.click(); report.flame.zoom(1)')
    page.run("document.querySelector('#sites th:nth-child(2) button').click(); document.querySelector('#compare th:nth-child(1) button').click()")
    page.frame()
    changed, said = page.run(shown), address()
    page.check(all(one != other for one, other in zip(usual, changed)), f'not everything changes: {usual}, {changed}')
    values = dict(pair.split('=') for pair in said.split('&')[1:])
    page.check(values == STATES, f'the address says {values}, not {STATES}')
    page.run("location.hash = '#sites'")
    page.frame()
    page.check(page.run(shown) == usual, f'without a state in the address {page.run(shown)} is shown, not {usual}')
    page.run(f'location.hash = {json.dumps(said)}')
    page.frame()
    page.check(page.run(shown) == changed, f'the address shows {page.run(shown)}, not {changed}')
    page.anew()
    page.check(page.run(shown) == changed, f'opened anew, the address shows {page.run(shown)}, not {changed}')
    page.run("location.hash = '#timeline&theme=light&' + [...'" + ' '.join(STATES) + "'.split(' ')].map(name => `${name}=-1`).join('&')")
    page.frame()
    page.run("location.hash = '#timeline'")
    page.frame()
    page.check(page.run(shown) == usual and address() == '#timeline', f'in the end it shows {page.run(shown)} by {address()}')
