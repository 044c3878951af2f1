// Canvases that are sharp on every screen, and the one box that tells of what is under the mouse.

class Surface {
  constructor(parent, height, label) {
    this.canvas = element('canvas', {tabindex: 0, role: 'img', 'aria-label': label});
    this.height = height;
    parent.append(this.canvas);
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
  let short = text.length > most ? text.slice(0, most) : text;
  while (short.length > 2 && pen.measureText(short === text ? short : `${short}…`).width > width) {
    short = short.slice(0, Math.floor(short.length * 0.9));
  }
  return short === text ? text : short.length > 2 ? `${short}…` : '';
}

const tip = {
  show(x, y, ...children) {
    const box = document.getElementById('tip');
    box.replaceChildren(...children.filter(Boolean));
    box.hidden = false;
    const {width, height} = box.getBoundingClientRect();
    const left = x + 16 + width > window.innerWidth ? Math.max(4, x - width - 12) : x + 16;
    box.style.left = `${left}px`;
    box.style.top = `${Math.max(4, Math.min(y + 14, window.innerHeight - height - 6))}px`;
  },
  hide() {
    document.getElementById('tip').hidden = true;
  },
};
