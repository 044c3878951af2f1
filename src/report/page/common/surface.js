// Canvases that are sharp on every screen, and the one box with the details under the mouse.

class Surface {
  constructor(parent, height, label) {
    this.canvas = element('canvas', {tabindex: 0, role: 'img', 'aria-label': label});
    this.height = height;
    parent.append(this.canvas);
    // What the keyboard has shown does not stay without the focus.
    this.canvas.addEventListener('blur', () => tip.hide());
    this.pen = this.canvas.getContext('2d');
    this.waiting = false;
  }

  get width() {
    return this.canvas.clientWidth;
  }

  // Calls `draw` before the next picture, once, however often it is asked.
  ask(draw) {
    if (!this.waiting) {
      this.waiting = true;
      requestAnimationFrame(() => {
        this.waiting = false;
        this.begin();
        draw(this.pen);
      });
    }
  }

  begin() {
    const scale = Math.min(3, window.devicePixelRatio || 1);
    const [width, height] = [Math.max(1, Math.round(this.width * scale)), Math.round(this.height * scale)];
    this.canvas.style.height = `${this.height}px`;
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.pen.setTransform(scale, 0, 0, scale, 0, 0);
    this.pen.clearRect(0, 0, this.width, this.height);
    this.pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    this.pen.textBaseline = 'middle';
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

// The text, cut to fit. Measuring is slow, so the first guess is by the width of an average letter.
function fitted(pen, text, width) {
  const most = Math.floor(width / 5);
  text = harmless(text.slice(0, most + 1));
  let short = text.length > most ? text.slice(0, most) : text;
  while (short.length > 2 && pen.measureText(short === text ? short : `${short}…`).width > width) {
    short = short.slice(0, Math.floor(short.length * 0.9));
  }
  return short === text ? text : short.length > 2 ? `${short}…` : '';
}

// The details of the item under the mouse, or of the one that the keyboard has reached. A click or
// Enter pins them: then their text can be selected and copied, until the box is closed, Escape is
// pressed or something else is clicked.
const tip = {
  held: false,
  get box() {
    return document.getElementById('tip');
  },
  show(x, y, ...children) {
    if (this.held) {
      return;
    }
    const {box} = this;
    box.replaceChildren(...children.filter(Boolean));
    box.hidden = false;
    this.at = [x, y];
    this.place();
  },
  place() {
    const [x, y] = this.at;
    const {width, height} = this.box.getBoundingClientRect();
    const left = x + 16 + width > window.innerWidth ? Math.max(4, x - width - 12) : x + 16;
    this.box.style.left = `${left}px`;
    this.box.style.top = `${Math.max(4, Math.min(y + 14, window.innerHeight - height - 6))}px`;
  },
  hide() {
    this.box.hidden = !this.held;
  },
  // `from` is the element from which the keyboard pins it. The focus comes back there.
  hold(from = null) {
    const {box} = this;
    if (box.hidden || this.held) {
      return;
    }
    this.held = true;
    this.from = from;
    box.dataset.held = 'yes';
    const text = box.innerText;
    const copy = element('button', {type: 'button', click: () => {
      copy_text(text);
      copy.textContent = 'Copied';
    }}, 'Copy');
    box.append(element('div', {class: 'controls', id: 'tip-controls'}, copy, element('button', {type: 'button', click: () => this.release()}, 'Close')));
    this.place();
    if (from) {
      copy.focus({preventScroll: true});
    }
  },
  release() {
    if (this.held) {
      this.held = false;
      this.from?.focus({preventScroll: true});
      delete this.box.dataset.held;
      this.box.hidden = true;
    }
  },
};

function listen_to_tip() {
  document.addEventListener('pointerdown', event => tip.box.contains(event.target) || tip.release(), {capture: true});
  document.addEventListener('keydown', event => {
    if (event.key === 'Escape' && tip.held) {
      event.stopPropagation();
      tip.release();
    }
  }, {capture: true});
}

// Pages from a disk may not reach the clipboard in the new way.
async function copy_text(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.body.appendChild(element('textarea', {style: 'position: fixed; opacity: 0'}));
    area.value = text;
    area.select();
    document.execCommand('copy');
    area.remove();
  }
}
