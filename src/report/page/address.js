// What is shown, in the fragment of the address: "#segments&at=900&find=forward". Who opens the address again, or gets
// it from somebody, sees the same. It may say anything: what does not fit the data is ignored.

class Address {
  // `apply(view, values)` shows what the address says.
  constructor(apply) {
    this.apply = apply;
    this.waiting = null;
    this.read();
    window.addEventListener('hashchange', () => this.show());
    document.querySelectorAll('nav a').forEach(link => link.addEventListener('click', event => {
      event.preventDefault();
      this.view = link.hash.slice(1);
      document.getElementById(this.view).scrollIntoView({block: 'start'});
      this.note({});
    }));
  }

  read() {
    const [view, ...values] = window.location.hash.slice(1).split('&');
    this.view = document.querySelector(`nav a[href="#${CSS.escape(view)}"]`) ? view : '';
    this.values = new URLSearchParams(values.join('&'));
  }

  show() {
    this.read();
    this.apply(this.view, this.values);
    if (this.view !== '') {
      document.getElementById(this.view).scrollIntoView({block: 'start'});
    }
  }

  // Writes them down; '' and null are no value. Not at each step of a slider: browsers refuse too many.
  note(values) {
    for (const [name, value] of Object.entries(values)) {
      value === '' || value === null || value === undefined ? this.values.delete(name) : this.values.set(name, value);
    }
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.write(), WRITTEN_AFTER_MS);
  }

  write() {
    const values = this.values.toString();
    window.history.replaceState(null, '', `#${this.view}${values ? `&${values}` : ''}`);
  }
}

const WRITTEN_AFTER_MS = 200;
