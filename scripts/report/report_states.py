"""The checks of test.py for the address of the page, which holds its state."""
import json


def test_address(page):
    """The address holds the state of the page and restores it; an invalid address does no harm."""
    address = lambda: page.run('new Promise(done => setTimeout(() => done(location.hash), 2 * WRITTEN_AFTER_MS))')
    # The state may be due to be written between a new address and the event that tells of it.
    opened = page.run("(() => { location.hash = '#sites'; report.address.write(); return location.hash })()")
    page.check(opened == '#sites', f'the state is written over an address just opened: {opened}')
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
