"""The checks of test.py for the flame graph."""


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
