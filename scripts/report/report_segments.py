"""The checks of test.py for the segments and the events beside them."""


def test_events(page, find):
    """The list shows what the command prints, and selecting a line shows the segments at that time. `find(address, entry)`."""
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
    """Free bytes next to each call site, counted again independently."""
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
