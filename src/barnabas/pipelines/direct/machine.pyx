# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Works on records one by one, as a program says (program.py), without a Python object for a record.

`Machine.run` is certain about a record if every step of the program is, and then makes the values of its outputs with the
same bytes as Spark's expressions. All other records are left to these: those with an error above all.
"""

from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcmp, memcpy

from barnabas.pipelines.direct.lines cimport LineReader
from barnabas.pipelines.direct.objects cimport ObjectReader
from barnabas.pipelines.direct.separated cimport SeparatedReader
from barnabas.pipelines.direct.operations cimport (
    ADD, AND, CHOOSE, COALESCE, CONCAT, CONTAINS, DIVIDE, ENDS, EQUAL, FILTER, HEADER, IS_NULL, JOIN, LESS, LIKE, LOOKUP,
    MULTIPLY, OR, READ, REFUSE, REMAINDER, STARTS, SUBTRACT, compared, computed, converted, logic,
)
from barnabas.pipelines.direct.values cimport (
    DOUBLE, TEXT, TEXT_BYTES_MAX, TIME, Column, Room, Value, put_escaped, text_class, write_text,
)
from barnabas.records.columnar cimport OK, Buffer, put, reserve

cpdef enum Shape:
    FIELD
    OBJECT

cpdef enum Part:
    KEY
    VALUE
    OFFSET
    TIMESTAMP
    TOPIC
    PARTITION

cdef enum:
    SLOTS_MAX = 1024
    ROOM_BYTES = 1 << 16

SLOTS = SLOTS_MAX
ARGUMENTS = {
    READ: 0, AND: 2, OR: 2, EQUAL: 2, LESS: 2, LIKE: 2, STARTS: 2, ENDS: 2, CONTAINS: 2, ADD: 2, SUBTRACT: 2, MULTIPLY: 2,
    DIVIDE: 2, REMAINDER: 2, CHOOSE: 3, LOOKUP: 2,
}
"""The fewest arguments of each step; one if it is not here."""

cdef struct Step:
    int op
    int out
    int first      # of its arguments
    int count
    int kind       # of its result or its arguments, as the operation needs it


cdef struct Bytes:
    # A column of binary values. data: NULL without any.
    const int32_t* ends
    const uint8_t* data
    const uint8_t* valid


cdef class Template:
    """How a column of an output is fate of values. texts: of an OBJECT, what is before each field and at the end."""
    cdef int shape
    cdef Py_ssize_t count, fixed
    cdef list slots, texts

    def __init__(self, int shape, list slots, list texts):
        if shape == FIELD and (len(slots) != 1 or texts) or shape == OBJECT and len(texts) != len(slots) + 1:
            raise ValueError(f"template of {len(slots)} fields and {len(texts)} texts")
        if shape != FIELD and shape != OBJECT:
            raise ValueError(f"template of shape {shape}")
        self.shape, self.slots, self.texts = shape, slots, texts
        self.count = len(slots)
        self.fixed = sum(map(len, texts))

    cdef bint write(self, Column column, Value* values, int* kinds) except? True:
        """Append a value; False if its text is not certain, after which the row is to be taken back."""
        cdef Buffer out = column.data
        cdef Value* value
        cdef Py_ssize_t i, size, room = self.fixed + 16
        cdef int slot
        cdef bytes text
        for i in range(self.count):
            slot = self.slots[i]
            room += 6 * values[slot].length + 8 if kinds[slot] == TEXT and values[slot].there else TEXT_BYTES_MAX + 8
        if reserve(out, room) != OK:
            raise MemoryError
        for i in range(self.count):
            slot = self.slots[i]
            value = &values[slot]
            if self.shape == OBJECT:
                text = self.texts[i]
                put(out, <const uint8_t*> <const char*> text, len(text))
            if not value.there:
                if self.shape == OBJECT:
                    put(out, b"null", 4)
            elif kinds[slot] == TEXT:
                if self.shape == FIELD:
                    put(out, value.start, value.length)
                    continue
                put(out, b'"', 1)
                put_escaped(out, value.start, value.length)
                put(out, b'"', 1)
            else:
                if kinds[slot] == TIME:
                    put(out, b'"', 1)
                size = write_text(out.data + out.size, value, kinds[slot])
                if size == 0:
                    return False
                out.size += size
                if kinds[slot] == TIME:
                    put(out, b'"', 1)
        if self.shape == OBJECT:
            text = self.texts[self.count]
            put(out, <const uint8_t*> <const char*> text, len(text))
        return True


cdef class Machine:
    """Runs a program. kinds: the SlotType of each slot. constants: slots with their values for all records. parts: slots
    with the Part of the record that each shows. steps: (Op, slot of the result, slots of the arguments, kind). tables:
    for LOOKUP, its arguments' texts. templates: (column, Template), by column."""
    cdef LineReader lines
    cdef ObjectReader objects
    cdef SeparatedReader separated
    cdef int base
    cdef int kinds[SLOTS_MAX]
    cdef Value values[SLOTS_MAX]
    cdef int slots
    cdef int steps_count
    cdef list parts, kept_alive, columns_of, templates
    cdef Step steps[SLOTS_MAX]
    cdef int arguments[4 * SLOTS_MAX]
    cdef Buffer room
    cdef int columns

    def __init__(self, reader, int base, list kinds, dict constants, list parts, list steps, list templates):
        cdef int i, slot, used = 0
        cdef bytes text
        if len(kinds) > SLOTS_MAX or len(steps) > SLOTS_MAX:
            raise ValueError(f"{len(kinds)} slots and {len(steps)} steps")
        self.lines = reader if isinstance(reader, LineReader) else None
        self.objects = reader if isinstance(reader, ObjectReader) else None
        self.separated = reader if isinstance(reader, SeparatedReader) else None
        self.base, self.slots, self.steps_count = base, <int> len(kinds), <int> len(steps)
        for i in range(self.slots):
            self.kinds[i] = kinds[i]
            self.values[i].there = False
            if not 0 <= self.kinds[i] <= <int> TIME:  # enums compare without signs
                raise ValueError(f"kind {kinds[i]}")
        fields = 0 if reader is None else reader.fields
        if not 0 <= base <= self.slots - fields:
            raise ValueError(f"there is no slot {base + fields - 1}")
        self.kept_alive = []
        for slot, value in constants.items():
            self._check([slot])
            if value is None:
                continue
            self.values[slot].there = True
            if self.kinds[slot] == TEXT:
                text = value.encode()
                self.kept_alive.append(text)
                self.values[slot].start, self.values[slot].length = <const uint8_t*> <const char*> text, len(text)
            elif self.kinds[slot] == DOUBLE:
                self.values[slot].real = value
            else:
                self.values[slot].whole = value
        self.parts = [(int(slot), int(part)) for slot, part in parts]
        self._check([slot for slot, _ in self.parts])
        for i, (op, out, arguments, kind) in enumerate(steps):
            self._check([out, *arguments])
            if used + len(arguments) > 4 * SLOTS_MAX or not 0 <= op <= <int> REFUSE:
                raise ValueError(f"step {op} of {len(arguments)} arguments")
            if len(arguments) < ARGUMENTS.get(op, 1):
                raise ValueError(f"step {op} of {len(arguments)} arguments")
            self.steps[i].op, self.steps[i].out, self.steps[i].kind = op, out, kind
            self.steps[i].first, self.steps[i].count = used, <int> len(arguments)
            for slot in arguments:
                self.arguments[used] = slot
                used += 1
        self.columns_of = [int(column) for column, _ in templates]
        self.templates = [<Template?> template for _, template in templates]
        for template in self.templates:
            self._check((<Template> template).slots)
        if self.columns_of and min(self.columns_of) < 0:
            raise ValueError(f"column {min(self.columns_of)}")
        self.columns = max(self.columns_of) + 1 if templates else 0
        self.room = Buffer()

    def _check(self, slots):
        for slot in slots:
            if not 0 <= slot < self.slots:
                raise ValueError(f"there is no slot {slot}")

    def run(self, Py_ssize_t rows, dict parts, Py_ssize_t first, list headers, const uint8_t[::1] wanted):
        """What becomes of each record, as a byte: 0 it is left to Spark, 1 it has a row in every column, 2 a filter has
        removed it; and the columns. parts: for each Part, None, or offsets, data and validity of a binary column (data
        alone for OFFSET and TIMESTAMP; the value itself for TOPIC and PARTITION), of which `first` is the first row.
        headers: of each record as a dict, or None; empty if no step needs them. wanted: 0 for rows to skip.

        Raises ValueError for offsets outside of the data.
        """
        if rows < 0:
            raise ValueError("offsets are missing")
        cdef bytearray certain = bytearray(rows)
        cdef unsigned char* sure = certain
        cdef Py_ssize_t row
        cdef int fate
        cdef list columns = [Column(rows * self.columns_of.count(place)) for place in range(self.columns)]
        cdef Bytes texts[2]
        if wanted.shape[0] < rows:
            raise ValueError("offsets are missing")
        cdef list kept = [opened(parts.get(part), rows, first, &texts[part]) for part in (0, 1)]
        if reserve(self.room, ROOM_BYTES) != OK:
            raise MemoryError
        for row in range(rows):
            if not wanted[row]:
                continue
            fate = self.work(row, first, texts, parts, headers)
            if fate == 1 and not self.write(columns):
                fate = 0
            sure[row] = fate
        return certain, columns

    cdef bint write(self, list columns) except? True:
        """Add a row to every column; False, and nothing is added, if one of the texts is not certain."""
        cdef Py_ssize_t i
        cdef Template template
        cdef Column column
        for i in range(len(self.templates)):
            template = self.templates[i]
            column = columns[self.columns_of[i]]
            if not template.write(column, self.values, self.kinds):
                for column in columns:
                    column.unwind()
                return False
            column.mark(template.shape == OBJECT or self.values[<int> template.slots[0]].there)
        for column in columns:
            column.keep()
        return True

    cdef int work(self, Py_ssize_t row, Py_ssize_t first, Bytes* texts, dict parts, list headers) except -1:
        """0, 1 or 2 as `run` returns it."""
        cdef Room room
        cdef int slot, part, i, outcome
        cdef Value* value
        cdef const uint8_t* p
        cdef Py_ssize_t n = 0
        room.at, room.end = self.room.data, self.room.data + ROOM_BYTES
        for slot, part in self.parts:
            value = &self.values[slot]
            value.there = True
            if part == KEY or part == VALUE:
                if not bytes_at(&texts[part], first + row, value) or (
                    value.there and not text_class(value.start, value.length)
                ):
                    return 0
            elif part == TOPIC:
                text = parts[<int> TOPIC]
                value.start, value.length = <const uint8_t*> <const char*> <bytes> text, len(text)
            elif part == PARTITION:
                value.whole = parts[<int> PARTITION]
            else:
                value.whole = int(parts[part][first + row])
        for i in range(self.steps_count):
            if self.steps[i].op == READ:
                outcome = self.read(&texts[<int> VALUE], first + row, &room)
            elif self.steps[i].op == HEADER:
                outcome = self.header(&self.steps[i], headers[row])
            else:
                outcome = self.step(&self.steps[i], &room)
            if outcome != 1:
                return outcome
        return 1

    cdef int read(self, Bytes* texts, Py_ssize_t at, Room* room) except -1:
        cdef Value whole
        cdef Value* into = &self.values[self.base]
        if not bytes_at(texts, at, &whole) or not whole.there:
            return 0
        if self.lines is not None:
            return self.lines.read(whole.start, whole.length, into, room)
        if self.objects is not None:
            return self.objects.read(whole.start, whole.length, into, room)
        if self.separated is not None:
            return self.separated.read(whole.start, whole.length, into, room)
        return 0

    cdef int header(self, Step* step, headers) except -1:
        """The header that the argument names; the record is left to Spark if `headers` is False."""
        cdef Value* out = &self.values[step.out]
        cdef Value* name = &self.values[self.arguments[step.first]]
        cdef bytes text
        if headers is False:
            return 0
        out.there = False
        if headers is None:
            return 1
        text = (<dict> headers).get((<const char*> name.start)[:name.length])
        if text is not None:
            out.there = True
            out.start, out.length = <const uint8_t*> <const char*> text, len(text)
        return 1

    cdef int step(self, Step* step, Room* room) noexcept:
        """1 to go on, 0 to leave the record to Spark, 2 to remove it."""
        cdef int* places = &self.arguments[step.first]
        cdef Value* out = &self.values[step.out]
        cdef Value* a = &self.values[places[0]] if step.count > 0 else out
        cdef Value* b = &self.values[places[1]] if step.count > 1 else a
        cdef int op = step.op
        if op == FILTER:
            return 1 if a.there and a.whole else 2
        if op == IS_NULL:
            out.whole = not a.there
            out.there = True
            return 1
        if op == AND or op == OR:
            return logic(op, a, b, out)
        if op == COALESCE:
            return self.first_of(step, out)
        if op == CHOOSE:
            out[0] = b[0] if a.there and a.whole else self.values[places[2]]
            return 1
        if op == CONCAT or op == JOIN:
            return self.joined(step, out, room)
        if op == LOOKUP:
            return self.looked_up(step, out)
        if op == REFUSE:
            return self.refused(step, a)
        if not (a.there and b.there):
            out.there = False
            return 1
        out.there = True
        if op <= CONTAINS:
            return compared(op, step.kind, a, b, out)
        if op <= REMAINDER:
            return computed(op, step.kind, a, b, out)
        return converted(op, step.kind, a, out, room)

    cdef int first_of(self, Step* step, Value* out) noexcept:
        cdef int i
        for i in range(step.count):
            if self.values[self.arguments[step.first + i]].there:
                out[0] = self.values[self.arguments[step.first + i]]
                return 1
        out.there = False
        return 1

    cdef int joined(self, Step* step, Value* out, Room* room) noexcept:
        """CONCAT: null if an argument is null. JOIN: the first argument between the others that are not null."""
        cdef int i, begin = 1 if step.op == JOIN else 0
        cdef Value* value
        cdef Value* between = &self.values[self.arguments[step.first]]
        cdef uint8_t* start = room.at
        cdef bint begun = False
        for i in range(begin, step.count):
            value = &self.values[self.arguments[step.first + i]]
            if not value.there:
                if step.op == CONCAT:
                    out.there = False
                    return 1
                continue
            if room.end - room.at < value.length + between.length:
                return 0
            if begun and step.op == JOIN:
                memcpy(room.at, between.start, between.length)
                room.at += between.length
            memcpy(room.at, value.start, value.length)
            room.at += value.length
            begun = True
        out.there = True
        out.start, out.length = start, room.at - start
        return 1

    cdef int looked_up(self, Step* step, Value* out) noexcept:
        """Arguments: the text, a default, then pairs of text and result."""
        cdef Value* text = &self.values[self.arguments[step.first]]
        cdef Value* key
        cdef Value chosen = self.values[self.arguments[step.first + 1]]
        cdef int i
        if text.there:
            for i in range(2, step.count, 2):
                key = &self.values[self.arguments[step.first + i]]
                if key.length == text.length and memcmp(key.start, text.start, text.length) == 0:
                    chosen = self.values[self.arguments[step.first + i + 1]]
        out[0] = chosen
        return 1

    cdef int refused(self, Step* step, Value* text) noexcept:
        """Leave the record to Spark if the first argument is null, empty or one of the others."""
        cdef Value* other
        cdef int i
        if not text.there or text.length == 0:
            return 0
        for i in range(1, step.count):
            other = &self.values[self.arguments[step.first + i]]
            if other.length == text.length and memcmp(other.start, text.start, text.length) == 0:
                return 0
        return 1


cdef tuple opened(column, Py_ssize_t rows, Py_ssize_t first, Bytes* into):
    """Point `into` at the buffers of a binary column; the views that keep them alive."""
    cdef const int32_t[::1] ends
    cdef const uint8_t[::1] data
    cdef const uint8_t[::1] valid
    cdef Py_ssize_t i
    into.ends, into.data, into.valid = NULL, NULL, NULL
    if column is None:
        return ()
    ends, data = column[0], column[1]
    if first < 0 or rows < 0 or first > ends.shape[0] or rows >= ends.shape[0] - first:
        raise ValueError("offsets are missing")
    for i in range(first, first + rows):
        if ends[i] < 0 or ends[i + 1] < ends[i] or ends[i + 1] > data.shape[0]:
            raise ValueError("an offset is wrong")
    into.ends, into.data = &ends[0], &data[0]
    if column[2] is not None:
        valid = column[2]
        if valid.shape[0] * 8 < first + rows:
            raise ValueError("offsets are missing")
        into.valid = &valid[0]
    return column


cdef inline bint bytes_at(Bytes* texts, Py_ssize_t at, Value* value) noexcept:
    if texts.ends == NULL:
        return False
    value.there = texts.valid == NULL or texts.valid[at >> 3] >> (at & 7) & 1
    value.start = texts.data + texts.ends[at]
    value.length = texts.ends[at + 1] - texts.ends[at]
    return True


def reader_of(options):
    """The reader with these options, see `Program.reader`; None for none."""
    if "lines" in options:
        return LineReader(options["lines"])
    if "objects" in options:
        return ObjectReader(list(options["objects"]), list(options["kinds"]))
    if "separated" in options:
        separator, quote, escape, empty_is_null = options["separated"]
        return SeparatedReader(
            list(options["kinds"]), separator.encode(), quote.encode(), escape.encode(), empty_is_null
        )
    return None
