"""Runs a shell script in a pseudo terminal of 100x30 and acts on the `tuplane` that it starts.

usage: terminal.py SCRIPT STEP...   a step is one of
  wait:TEXT        until a line of the screen contains the text
  send:TEXT        types it (\\x.. as in Python)
  kill:NAME        sends the signal to tuplane
  size:COLUMNSxLINES   gives the terminal another size
  read:            until all that was typed has been read
  sleep:SECONDS
Everything that the terminal got is written to standard output in the end. Exit 1 if a text did not come,
or if the script had not ended 20 s after the last step.
"""

import codecs
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

TOKEN = re.compile(r"\x1b\[([0-9;?<>=]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]|\x1b[=>78]|[^\x1b]|\x1b")


def descendants(pid):
    found = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            for child in map(int, children.read().split()):
                found += [child] + descendants(child)
    except FileNotFoundError:
        pass
    return found


def tuplane(shell):
    for pid in descendants(shell):
        try:
            with open(f"/proc/{pid}/comm") as name:
                if name.read().strip() == "tuplane":
                    return pid
        except FileNotFoundError:
            pass
    return None


def waiting(shell):
    """Bytes that were typed and nobody has read."""
    terminal = os.open(f"/proc/{shell}/fd/0", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        return struct.unpack("i", fcntl.ioctl(terminal, termios.FIONREAD, b"\0\0\0\0"))[0]
    finally:
        os.close(terminal)


class Screen:
    """As much of a terminal as is needed to know what can be read on it."""

    def __init__(self):
        self.cells, self.x, self.y = {}, 0, 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.rest = ""

    def feed(self, part):
        text = self.rest + self.decoder.decode(part)
        # A sequence that is not whole yet waits for the next part.
        cut = text.rfind("\x1b")
        whole = cut < 0 or TOKEN.match(text, cut).group() != "\x1b"
        self.rest = "" if whole else text[cut:]
        for token in TOKEN.finditer(text if whole else text[:cut]):
            numbers, command = token.group(1), token.group(2)
            if command == "H":
                line, _, column = numbers.partition(";")
                self.y, self.x = int(line or 1) - 1, int(column or 1) - 1
            elif command == "J" or command in ("h", "l") and numbers == "?1049":
                self.cells = {}
            elif command is None and token.group() == "\n":
                self.y, self.x = self.y + 1, 0
            elif command is None and token.group() >= " ":
                self.cells[self.y, self.x] = token.group()
                self.x += 1

    def has(self, text):
        lines = ("".join(self.cells.get((y, x), " ") for x in range(200)) for y in range(60))
        return any(text in line for line in lines)


def main():
    script, steps = sys.argv[1], sys.argv[2:]
    pid, terminal = pty.fork()
    if pid == 0:
        # Before anything runs that looks at it.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        os.execvp("bash", ["bash", "--norc", "-c", script])
    output = bytearray()
    screen = Screen()

    def read(seconds):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([terminal], [], [], min(left, 0.05))
            if ready:
                try:
                    part = os.read(terminal, 65536)
                except OSError:
                    return False
                if not part:
                    return False
                output.extend(part)
                screen.feed(part)
        return True

    failed = None
    for step in steps:
        kind, _, rest = step.partition(":")
        if kind == "wait":
            until = time.monotonic() + 20
            while not screen.has(rest):
                if time.monotonic() > until or not read(0.1):
                    failed = f"`{rest}` did not come"
                    break
        elif kind == "send":
            os.write(terminal, rest.encode().decode("unicode_escape").encode("latin-1"))
        elif kind == "kill":
            found = tuplane(pid)
            if found is None:
                failed = "tuplane does not run"
            else:
                os.kill(found, getattr(signal, "SIG" + rest))
        elif kind == "size":
            columns, _, lines = rest.partition("x")
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", int(lines), int(columns), 0, 0))
        elif kind == "read":
            until = time.monotonic() + 20
            while waiting(pid) > 0:
                if time.monotonic() > until or not read(0.1):
                    failed = f"{waiting(pid)} bytes stay unread"
                    break
        elif kind == "sleep":
            read(float(rest))
        if failed:
            break
    if failed is None:
        until = time.monotonic() + 20
        while read(0.1):
            if time.monotonic() > until:
                failed = "the script has not ended"
                break
    if failed:
        for left in descendants(pid) + [pid]:
            try:
                os.kill(left, signal.SIGKILL)
            except ProcessLookupError:
                pass
    os.waitpid(pid, 0)
    sys.stdout.buffer.write(bytes(output))
    sys.stdout.flush()
    if failed:
        print(f"\nFAILED: {failed}", file=sys.stderr)
        sys.exit(1)


main()
