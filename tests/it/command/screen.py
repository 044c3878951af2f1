#!/usr/bin/env python3
"""Uses `cachealloc top` on a terminal, as a person would.

    screen.py keys|ends|SIGNAL COMMAND [ARGUMENT...]

`keys`: selects, filters, opens a process, resizes, stops and continues, quits. `ends`: prints `watching`, and waits
until the screen shows that the process has ended. A signal's name: sends it. All check that it is restored."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

PATIENCE_S = 60
ENTER, ESCAPE, DOWN, CONTROL_Z = b"\r", b"\x1b", b"\x1b[B", b"\x1a"


class Terminal:
    """A terminal emulator with the functions that the command uses."""

    def __init__(self, command):
        self.ours, self.theirs = pty.openpty()
        self.resize(30, 200)
        self.modes = set()
        self.rest = ""
        self.raw = ""
        self.before = termios.tcgetattr(self.theirs)
        self.child = os.fork()
        if self.child == 0:
            os.close(self.ours)
            os.login_tty(self.theirs) if hasattr(os, "login_tty") else login(self.theirs)
            os.environ["TERM"] = "xterm"
            # The caller of the tests may ignore some signals, and the command would inherit that.
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.execv(command[0], command)

    def resize(self, lines, columns):
        self.lines, self.columns = lines, columns
        self.cells = {}
        self.at = (0, 0)
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys):
        os.write(self.ours, keys)

    def read(self, seconds):
        """Processes the output that has arrived; returns False if there is none."""
        if not select.select([self.ours], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.ours, 65536)
        except OSError:  # the other end is closed
            return False
        self.raw += data.decode(errors="replace")
        self.show(data.decode(errors="replace"))
        return bool(data)

    def show(self, text):
        text = self.rest + text
        while text:
            if text[0] == "\x1b":
                found = re.match(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b[()][A-Z0-9]|\x1b[=>78c]", text)
                if not found:
                    break  # the rest comes later
                if found[2]:
                    self.obey(found[1], found[2])
                text = text[found.end():]
            elif text[0] == "\r":
                self.at, text = (self.at[0], 0), text[1:]
            elif text[0] == "\n":
                self.at, text = (self.at[0] + 1, self.at[1]), text[1:]
            else:
                self.put(text[0])
                text = text[1:]
        self.rest = text

    def put(self, letter):
        self.cells[self.at] = letter
        self.at = (self.at[0], self.at[1] + 1)

    def obey(self, what, letter):
        numbers = [int(number or 1) for number in what.split(";")] if "?" not in what else []
        if letter == "H":
            self.at = (numbers[0] - 1, (numbers[1] if len(numbers) > 1 else 1) - 1)
        elif letter == "J":
            self.cells = {}
        elif letter in "hl" and what.startswith("?"):
            {"h": self.modes.add, "l": self.modes.discard}[letter](what[1:])

    def text(self):
        def line(number):
            return "".join(self.cells.get((number, column), " ") for column in range(self.columns)).rstrip()
        return "\n".join(line(number) for number in range(self.lines))

    def wait_for(self, wanted, absent=None):
        def is_there():
            text = self.text()
            return re.search(wanted, text) and not (absent and re.search(absent, text))
        deadline = time.monotonic() + PATIENCE_S
        while not is_there():
            if time.monotonic() > deadline:
                sys.exit(f"no {wanted!r} (or still {absent!r}) on the screen:\n{self.text()}")
            self.read(0.1)

    def wait_until(self, options):
        """Waits until the command has changed its state, and returns the wait status."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            done, status = os.waitpid(self.child, os.WNOHANG | options)
            if done:
                while self.read(0):  # what it left to read
                    pass
                return status
            if time.monotonic() > deadline:
                sys.exit(f"the command goes on:\n{self.text()}")
            self.read(0.02)

    def check_as_before(self):
        if termios.tcgetattr(self.theirs) != self.before:
            sys.exit(f"the terminal is another one: {termios.tcgetattr(self.theirs)}, before {self.before}")
        if "1049" in self.modes or self.raw.count("\x1b[?25h") == 0:
            sys.exit(f"still on the other screen, or without a cursor: {self.modes}")


def login(descriptor):
    os.setsid()
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)
    for number in range(3):
        os.dup2(descriptor, number)


def keys(terminal):
    terminal.wait_for(r"(?s)PID +GPU +ALLOCATED v.*busy 2 exit.*q quit")
    if "1049" not in terminal.modes:
        sys.exit("it draws over the shell's screen")
    # Filters several programs down to one, which is then the only line.
    own = os.environ["OWN"]
    terminal.press(b"/" + own.encode())
    terminal.wait_for(f'with "{own}"')
    terminal.press(ENTER)
    terminal.wait_for(r"1 line  with")
    terminal.press(DOWN + ENTER)
    terminal.wait_for(r"(?s)CALL SITE\n.*allocate_until_stopped record/statistics.c:\d+.*stack of the chosen")
    terminal.resize(12, 40)
    terminal.wait_for(r"(?s)no room: .*GPU")
    terminal.resize(30, 200)
    terminal.wait_for("stack of the chosen", "no room")
    terminal.press(CONTROL_Z)
    if not os.WIFSTOPPED(terminal.wait_until(os.WUNTRACED)):
        sys.exit("it does not stop")
    terminal.check_as_before()
    os.kill(terminal.child, signal.SIGCONT)
    terminal.wait_for("stack of the chosen")
    terminal.press(ESCAPE)
    terminal.wait_for(r"1 line  with")
    terminal.press(b"q")
    return 0


def ends(terminal):
    terminal.wait_for(r"allocate_until_stopped")
    print("watching", flush=True)
    terminal.wait_for(r"process \d+ has ended")
    terminal.wait_for(r"allocate_until_stopped")
    terminal.press(b"q")
    return 0


def main():
    way, command = sys.argv[1], sys.argv[2:]
    terminal = Terminal(command)
    if way in ("keys", "ends"):
        wanted = {"keys": keys, "ends": ends}[way](terminal)
    else:
        wanted = -getattr(signal, way)
        terminal.wait_for(r"PID +GPU")
        os.kill(terminal.child, -wanted)
    code = os.waitstatus_to_exitcode(terminal.wait_until(0))
    if code != wanted:
        sys.exit(f"exit code {code}, not {wanted}:\n{terminal.text()}")
    terminal.check_as_before()
    print("as before")


if __name__ == "__main__":
    main()
