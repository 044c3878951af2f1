// State of the view in the fragment of the address: "#segments&at=900&find=forward". Opening the
// address again, here or elsewhere, shows the same view. The fragment is untrusted: values that do
// not fit the data are ignored.

class Address {
  // `states`, in the order in which they are shown: {name, read(), show(text), usual()}. States
  // with their usual value are not in the address.
  constructor(states) {
    this.states = states;
    this.waiting = null;
    this.read();
    window.addEventListener('hashchange', () => this.show());
    document.querySelectorAll('nav a').forEach(link => link.addEventListener('click', event => {
      event.preventDefault();
      this.view = link.hash.slice(1);
      document.getElementById(this.view).scrollIntoView({block: 'start'});
    }));
    // A link of a finding sets only its subject; other states stay as they are.
    document.querySelectorAll('#findings a').forEach(link => link.addEventListener('click', event => {
      event.preventDefault();
      const [view, ...values] = link.hash.slice(1).split('&');
      const wanted = new URLSearchParams(values.join('&'));
      this.states.filter(state => wanted.has(state.name)).forEach(state => state.show(wanted.get(state.name)));
      this.view = view;
      document.getElementById(view)?.scrollIntoView({block: 'start'});
    }));
    // Any action of the reader may change the view.
    for (const kind of ['click', 'change', 'input', 'keyup', 'wheel', 'pointerup']) {
      document.addEventListener(kind, () => this.note(), {passive: true, capture: true});
    }
  }

  read() {
    this.known = window.location.hash;
    const [view, ...values] = window.location.hash.slice(1).split('&');
    this.view = document.querySelector(`nav a[href="#${CSS.escape(view)}"]`) ? view : '';
    this.values = new URLSearchParams(values.join('&'));
  }

  show() {
    // What the reader did before must not be written over the new address.
    clearTimeout(this.waiting);
    this.read();
    this.states.forEach(state => {
      const text = this.values.get(state.name) ?? state.usual();
      if (text !== state.read()) {
        state.show(text);
      }
    });
    if (this.view !== '') {
      document.getElementById(this.view).scrollIntoView({block: 'start'});
    }
  }

  // Not at each step of a slider: browsers refuse too many.
  note() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.write(), WRITTEN_AFTER_MS);
  }

  write() {
    // Another address has been opened, and its event is still to come.
    if (window.location.hash !== this.known) {
      return;
    }
    const values = new URLSearchParams(this.states.filter(state => state.read() !== state.usual()).map(state => [state.name, state.read()])).toString();
    window.history.replaceState(null, '', `#${this.view}${values ? `&${values}` : ''}`);
    this.known = window.location.hash;
  }
}

const WRITTEN_AFTER_MS = 200;
