"""The checks of test.py for the timeline: drawing, zoom, bands, blocks, what is held."""


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
