"""The checks of test.py for the other views: tables, sizes of the window, several files, ranges, hostile names."""
import report_snapshots


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
    page.check('were freed after at most ' in page.text('#temporary-text'), 'temporaries are not named')
    page.check(page.text('#more-waste') != '', 'early and late are missing')
    page.check('free inside partly used segments' in page.text('#segments-text'), 'fragmentation is not named')
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
