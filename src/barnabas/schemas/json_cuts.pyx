# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Where a large JSON text can be cut into pieces that are JSON themselves, found without the interpreter's lock.

`cuts` lists the steps by which the value is put together again, as (what, begin, end):

    RUN    raw[begin:end] has items of the innermost open list or object, with commas between them
    OPEN   a list or an object begins at `end`; in an object, raw[begin:end] holds its name and a colon, otherwise spaces
    CLOSE  the innermost one ends
    WRONG  no JSON text goes on like this at `begin`; the last step

A list or an object is opened only if it does not fit into a piece; smaller ones are parts of runs. TOO_DEEP and TOO_MANY,
the only step then, say that objects and lists are nested too deeply, or that there are too many of them.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memset

RUN = 0
OPEN = 1
CLOSE = 2
WRONG = 3
TOO_DEEP = 4
TOO_MANY = 5

cdef struct Level:
    Py_ssize_t place        # of the bracket
    Py_ssize_t items        # where the items begin that belong to no step yet
    Py_ssize_t item         # where the present item begins
    unsigned char closing   # the bracket that ends it
    bint filled             # the present item has been opened and closed: nothing may follow it before a comma

cdef enum Stop:
    AT_END
    AT_COMMA
    AT_CLOSE
    AT_FAULT
    DEEP
    MANY


cdef bint is_blank(const unsigned char *at, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    while begin < end:
        if at[begin] != c' ' and at[begin] != c'\n' and at[begin] != c'\t' and at[begin] != c'\r':
            return False
        begin += 1
    return True


cdef Py_ssize_t end_of_text(const unsigned char *at, Py_ssize_t place, Py_ssize_t size) noexcept nogil:
    """Behind the quotation mark that ends the text whose first character is at `place`; `size` if there is none."""
    cdef const unsigned char *mark
    cdef Py_ssize_t quote, before
    cdef Py_ssize_t begin = place
    while True:
        mark = <const unsigned char *>memchr(at + place, c'"', size - place)
        if mark == NULL:
            return size
        quote = mark - at
        before = quote
        while before > begin and at[before - 1] == c'\\':
            before -= 1
        place = quote + 1
        if (quote - before) % 2 == 0:
            return place


cdef class _Scan:
    cdef const unsigned char *at
    cdef Py_ssize_t size, place, done, piece_bytes, containers, containers_max
    cdef int depth, opened, depth_max
    cdef Level *levels

    def __cinit__(self, int depth_max):
        self.levels = <Level *>malloc((depth_max + 2) * sizeof(Level))
        if self.levels == NULL:
            raise MemoryError
        memset(self.levels, 0, sizeof(Level))

    def __dealloc__(self):
        free(self.levels)

    cdef Stop go_on(self) noexcept nogil:
        """Up to the next place at which steps have to be noted."""
        cdef unsigned char c
        cdef Level *level
        while self.place < self.size:
            c = self.at[self.place]
            level = self.levels + self.depth
            if c == c'"':
                self.place = end_of_text(self.at, self.place + 1, self.size)
                continue
            if c == c'[' or c == c'{':
                if level.filled:
                    return AT_FAULT
                if self.depth == self.depth_max:
                    return DEEP
                self.containers += 1
                if self.containers > self.containers_max:
                    return MANY
                self.depth += 1
                level += 1
                level.place = self.place
                level.items = level.item = self.place + 1
                level.closing = c + 2
                level.filled = False
            elif c == c']' or c == c'}':
                if self.depth == 0 or c != level.closing:
                    return AT_FAULT
                if self.opened == self.depth:
                    return AT_CLOSE
                self.depth -= 1
            elif c == c',':
                if self.depth == 0:
                    return AT_FAULT
                if level.filled:
                    if not is_blank(self.at, level.items, self.place):
                        return AT_FAULT
                    level.filled = False
                    level.items = self.place + 1
                level.item = self.place + 1
                if self.place - self.done > self.piece_bytes:
                    return AT_COMMA
            self.place += 1
        return AT_END

    cdef void note_run(self, list steps, Level *level, Py_ssize_t end):
        if end >= level.items:  # an empty one, too: an item is missing there
            steps.append((RUN, level.items, end))

    cdef void note_comma(self, list steps):
        """Everything before the comma becomes part of a step."""
        cdef Level *level
        while self.opened < self.depth:
            level = self.levels + self.opened
            if self.opened:
                self.note_run(steps, level, level.item - 1)
            self.opened += 1
            steps.append((OPEN, level.item, self.levels[self.opened].place))
        level = self.levels + self.depth
        self.note_run(steps, level, self.place)
        level.items = level.item
        self.place += 1
        self.done = self.place

    cdef bint note_close(self, list steps):
        """The innermost list or object, which has been opened, ends; False if it may not end here."""
        cdef Level *level = self.levels + self.depth
        if level.filled:
            if not is_blank(self.at, level.items, self.place):
                return False
        else:
            steps.append((RUN, level.items, self.place))
        steps.append((CLOSE, self.place, self.place))
        self.depth -= 1
        self.opened -= 1
        self.place += 1
        self.done = self.place
        level = self.levels + self.depth
        level.items = self.place
        level.filled = True
        return True


def cuts(bytes raw, Py_ssize_t piece_bytes, int depth_max, Py_ssize_t containers_max):
    """The steps; none if the whole text is one piece. See the module."""
    cdef _Scan scan = _Scan(depth_max)
    cdef list steps = []
    cdef Stop stop
    scan.at = raw
    scan.size = len(raw)
    scan.piece_bytes = piece_bytes
    scan.depth_max = depth_max
    scan.containers_max = containers_max
    while True:
        with nogil:
            stop = scan.go_on()
        if stop == AT_COMMA:
            scan.note_comma(steps)
        elif stop == AT_CLOSE and scan.note_close(steps):
            continue
        elif stop == DEEP or stop == MANY:
            return [(TOO_DEEP if stop == DEEP else TOO_MANY, scan.place, scan.place)]
        elif stop == AT_END and scan.depth == 0 and (
            not steps or is_blank(scan.at, scan.levels[0].items, scan.size)
        ):
            return steps
        else:
            steps.append((WRONG, scan.place, scan.place))
            return steps
