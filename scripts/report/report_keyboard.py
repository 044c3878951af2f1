"""The checks of test.py for readers without a mouse: what Tab reaches, that the focus is visible, and what keys do there."""
import json

# More stops than any of these pages has.
STOPS_MOST = 600
ACTIVE = 'document.activeElement'


def tab_to(page, selector):
    """Presses Tab until this element has the focus. Checks that the focus is visible at each step."""
    for _ in range(STOPS_MOST):
        page.browser.key('Tab')
        here, seen, what = page.run(f'''(one => [one.matches({json.dumps(selector)}),
            one === document.body || parseFloat(getComputedStyle(one).outlineWidth) >= 1 && getComputedStyle(one).outlineStyle !== 'none',
            one.outerHTML.slice(0, 80)])({ACTIVE})''')
        page.check(seen, f'the focus is invisible on {what}')
        if here:
            return
    page.check(False, f'Tab does not reach {selector}')


def type_into(page, text):
    for letter in text:
        page.browser.key(letter)
    page.frame()


def test_holds(page, selector):
    """Enter pins the details and moves to their buttons; Escape closes them and returns."""
    shown = page.run('!tip.box.hidden && tip.box.textContent')
    page.check(shown, f'the keys of {selector} show nothing')
    page.browser.key('Enter')
    page.frame()
    page.check(page.run(f"tip.held && {ACTIVE}.textContent === 'Copy'"), f'Enter in {selector} does not hold the details')
    page.check(page.text('#tip').startswith(shown or ''), f'what is held is {page.text("#tip")!r}, not {shown!r}')
    page.browser.key('Enter')
    page.browser.until(f"{ACTIVE}.textContent === 'Copied'", 'the text is not copied by the keyboard')
    page.browser.key('Escape')
    page.check(page.run(f'!tip.held && tip.box.hidden && {ACTIVE}.matches({json.dumps(selector)})'), f'Escape does not come back to {selector}')


def test_keyboard(page):
    """Everything on the page that a mouse can use: zoom, blocks, tables, events, segments."""
    page.run(f"scrollTo(0, 0); {ACTIVE}.blur()")
    span = lambda: page.run('report.timeline.view[1] - report.timeline.view[0]')
    whole = span()
    tab_to(page, '#timeline-in')
    page.browser.key('Enter')
    zoomed = span()
    page.check(zoomed < whole, 'the button does not zoom by the keyboard')
    tab_to(page, '#timeline canvas')
    page.browser.key('+')
    page.check(span() < zoomed, 'the key + does not zoom')
    page.browser.key('0')
    page.check(span() == whole, 'the key 0 does not show all')
    page.browser.key('ArrowUp')
    page.frame()
    page.check(page.run('report.timeline.block >= 0'), 'the arrow chooses no block')
    test_holds(page, '#timeline canvas')
    tab_to(page, '#flame-search')
    tab_to(page, '#flame canvas')
    page.browser.key('ArrowDown')
    page.check(page.run('report.flame.focus !== 0 && report.flame.path.textContent !== ""'), 'the flame graph tells nothing of a frame')
    tab_to(page, '#sites tr.opens')
    is_open = lambda: page.run(f"{ACTIVE}.getAttribute('aria-expanded')") == 'true'
    before = is_open()
    page.browser.key('Enter')
    page.check(is_open() != before, 'Enter opens and closes no call site')
    tab_to(page, '#segments-slider')
    tab_to(page, '#events-search')
    type_into(page, 'train.py:102')
    page.check(page.run('report.segments.events.found.length') > 3, 'the search finds nothing')
    tab_to(page, '#events-box')
    page.browser.key('Home')
    first = page.run('report.timeline.chosen')
    page.browser.key('ArrowDown')
    page.check(page.run('report.timeline.chosen') > first, 'the arrow does not choose the next event')
    page.frame()
    chosen = page.run("document.getElementById('events-box').getAttribute('aria-activedescendant')")
    page.check(page.run(f"document.getElementById({json.dumps(chosen)})?.getAttribute('aria-selected')") == 'true', 'a screen reader is not told of the event')
    tab_to(page, '#segments-box canvas')
    page.browser.key('ArrowDown')
    address = page.run('report.segments.marked.address')
    for key, sign in (('ArrowRight', 1), ('ArrowRight', 1), ('ArrowLeft', -1)):
        before = page.run('report.segments.marked.address')
        page.browser.key(key)
        step = page.run('report.segments.marked.address') - before
        page.check(step * sign > 0, f'{key} goes from {before:#x} by {step}')
    page.browser.key('ArrowDown')
    page.check(page.run('report.segments.marked.address') != address, 'the arrow does not go to the next segment')
    page.check('Segment s' in page.text('#tip'), f'the segment is not told: {page.text("#tip")!r}')
    test_holds(page, '#segments-box canvas')
    page.pick('#events-search', '')
    page.run('report.segments.mark(null); report.timeline.choose_block(-1); report.timeline.choose_moment(report.story.events)')


def test_lane(page):
    """The ranges of the program, one after the other."""
    page.run(f"scrollTo(0, 0); {ACTIVE}.blur()")
    tab_to(page, '#lane canvas')
    names = []
    for _ in range(3):
        page.browser.key('ArrowRight')
        names.append(page.text('#tip strong'))
    page.check(names[0] == page.run('report.data.strings[report.story.passes[0].range]'), f'the ranges are {names}')
    page.check(page.run('report.timeline.chosen') is None or names[1] != '', f'the ranges are {names}')
    test_holds(page, '#lane canvas')
    page.check(page.run('report.timeline.chosen') == page.run('report.timeline.lane.reached.end'), 'Enter does not choose the end of the range')
