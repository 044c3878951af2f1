// Failed allocations, each with the holders of the memory then.

class Ooms {
  constructor(section, data, choose) {
    this.section = section;
    this.data = data;
    this.choose = choose;
    this.box = element('div');
    this.more = element('button', {type: 'button', click: () => this.show_more()});
    section.append(this.box, this.more);
  }

  set(story) {
    // Failures from which the program recovered come last.
    this.ooms = [...story.ooms.filter(oom => !oom.overcome), ...story.ooms.filter(oom => oom.overcome)];
    this.stories = new Map();
    this.section.hidden = story.ooms.length === 0;
    document.getElementById('nav-ooms').hidden = story.ooms.length === 0;
    this.story = story;
    this.shown = 0;
    this.box.replaceChildren();
    this.show_more();
  }

  show_more() {
    const {story} = this;
    const next = this.ooms.slice(this.shown, this.shown + SHOWN_MORE);
    this.box.append(...next.flatMap(oom => this.describe(this.story_of(oom.track), oom)));
    this.shown += next.length;
    const left = story.ooms.length - this.shown;
    this.more.hidden = left === 0;
    this.more.textContent = `Show more (${count_text(left)} left)`;
  }

  // Name of the file, if there are several.
  whose(track) {
    return this.story.tracks.length > 1 ? `${this.data.files[track.file].name}: ` : '';
  }

  // The numbers of a failure are those of its own device in its own process, whatever else is
  // shown.
  story_of(track) {
    const {story, stories, data} = this;
    if (story.tracks.length === 1) {
      return story;
    }
    return stories.get(track) ?? stories.set(track, new Story(data, [track])).get(track);
  }

  describe(story, oom) {
    const {data} = this;
    const moment = oom.own + 1;
    const holders = new Map();
    story.each_alive(moment, row => {
      const site = data.stacks.site[story.stack[row]];
      const holder = holders.get(site) ?? holders.set(site, {site, bytes: 0, blocks: 0}).get(site);
      holder.bytes += story.bytes[row];
      holder.blocks++;
    });
    const box = element('div');
    const table = new Table(box, [site_column(data), bytes_column('bytes', 'Held'), count_column('blocks', 'Blocks')],
      {sort: 'bytes', first: 5, name: 'Holders'});
    table.set([...holders.values()]);
    return [
      element('h3', {class: oom.overcome ? '' : 'alarm'}, `${this.whose(oom.track)}${time_text(story.time_of(moment))} after start: ` +
        `${oom.title}${oom.overcome ? ', but the program recovered' : ''}`),
      element('p', {}, `Device ${oom.track.device} had ${bytes_text(oom.free)} free; ${bytes_text(story.reserved[moment])} were reserved, ` +
        `${bytes_text(story.total[moment])} of it live. ${oom.why} `,
      element('button', {type: 'button', click: () => this.choose(oom.event + 1)}, 'Show this time')),
      element('details', {open: ''}, element('summary', {}, 'Requested by'), frame_list(data, oom.stack)),
      element('p', {class: 'soft'}, 'Holders:'), box,
    ];
  }
}

const SHOWN_MORE = 10;
