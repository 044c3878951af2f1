// Light or dark: as the reader's system has it, until the button says otherwise.

const system_dark = window.matchMedia('(prefers-color-scheme: dark)');

const dark = {
  changed: [], // called when it changes
  get matches() {
    const {theme} = document.documentElement.dataset;
    return theme === undefined ? system_dark.matches : theme === 'dark';
  },
  // 'light', 'dark', or nothing for the system's.
  choose(theme) {
    if (theme === 'light' || theme === 'dark') {
      document.documentElement.dataset.theme = theme;
    } else {
      delete document.documentElement.dataset.theme;
    }
    this.tell();
  },
  tell() {
    document.getElementById('theme').textContent = this.matches ? 'Light' : 'Dark';
    this.changed.forEach(listener => listener());
  },
};

function listen_to_theme() {
  system_dark.addEventListener('change', () => dark.tell());
  document.getElementById('theme').addEventListener('click', () => dark.choose(dark.matches ? 'light' : 'dark'));
  dark.tell();
}
