# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Collects which blocks of rows have which words, without a Python object for a word.

A word of ASCII texts is letters, digits and underscores; it is kept in small letters, and cut after so many bytes. Rows with other
characters are left to the caller.
"""

import os

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy


cdef enum:
    WORD_BYTES_MAX = 256
    SPACE = 32


cdef struct Word:
    uint64_t hash
    int32_t begin       # in the arena
    int32_t size
    int32_t last        # the last block that has it
    int32_t count       # of blocks that have it


cdef class Words:
    """The words of one file's blocks. cut_bytes: what is kept of a longer word, at most 256."""

    cdef Word* words
    cdef Py_ssize_t count, capacity
    cdef int32_t* slots             # by hash: the number of a word and 1, or 0
    cdef Py_ssize_t mask
    cdef uint8_t* arena
    cdef Py_ssize_t arena_bytes, arena_capacity
    cdef int32_t* pairs             # word, block; in the order of blocks
    cdef Py_ssize_t pair_count, pair_capacity
    cdef uint8_t fold[256]
    cdef uint64_t seed
    cdef int cut_bytes

    def __cinit__(self, int cut_bytes):
        cdef int code
        if not 0 < cut_bytes <= WORD_BYTES_MAX:
            raise ValueError("cut_bytes")
        self.cut_bytes = cut_bytes
        for code in range(128):
            letter = chr(code)
            self.fold[code] = ord(letter.lower()) if letter.isalnum() or letter == "_" else SPACE
        # Logs have what others write: with a secret seed nobody can choose words that share a slot.
        self.seed = int.from_bytes(os.urandom(8), "little") | 1
        self.mask = (1 << 12) - 1
        self.slots = <int32_t*> calloc(self.mask + 1, sizeof(int32_t))
        if self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.words)
        free(self.slots)
        free(self.arena)
        free(self.pairs)

    def __len__(self):
        return self.count

    def add_texts(self, int block, const int32_t[::1] offsets not None, const uint8_t[::1] data not None):
        """Note the words of a block's texts. offsets, data: as Arrow has texts, with one offset more than there are texts.
        Returns the numbers of the texts that are not ASCII, whose words are not noted."""
        cdef Py_ssize_t number, at, end, limit = data.shape[0]
        cdef uint8_t word[WORD_BYTES_MAX]
        cdef uint8_t letter
        cdef int size
        cdef uint64_t hash
        left = []
        for number in range(offsets.shape[0] - 1):
            at, end = offsets[number], offsets[number + 1]
            if at < 0 or end > limit:
                raise ValueError("offsets")
            if not is_ascii(data, at, end):
                left.append(number)
                continue
            while at < end:
                letter = self.fold[data[at]]
                if letter == SPACE:
                    at += 1
                    continue
                hash, size = self.seed, 0
                while letter != SPACE:
                    if size < self.cut_bytes:
                        word[size] = letter
                        size += 1
                        hash = (hash ^ letter) * <uint64_t> 0x100000001B3
                    at += 1
                    if at == end:
                        break
                    letter = self.fold[data[at]]
                self.note(block, word, size, hash)
        return left

    def add_word(self, int block, bytes text not None):
        """Note one word of a block, as it is."""
        cdef Py_ssize_t size = len(text), at
        cdef const uint8_t* data = text
        cdef uint64_t hash = self.seed
        for at in range(size):
            hash = (hash ^ data[at]) * <uint64_t> 0x100000001B3
        self.note(block, data, size, hash)

    cdef int note(self, int block, const uint8_t* word, Py_ssize_t size, uint64_t hash) except -1:
        cdef Py_ssize_t slot
        cdef Word* entry
        hash = (hash ^ (hash >> 32)) * self.seed
        hash ^= hash >> 29
        slot = hash & self.mask
        while self.slots[slot]:
            entry = &self.words[self.slots[slot] - 1]
            if entry.hash == hash and entry.size == size and not memcmp(self.arena + entry.begin, word, size):
                if entry.last != block:
                    entry.last = block
                    entry.count += 1
                    self.pair(self.slots[slot] - 1, block)
                return 0
            slot = (slot + 1) & self.mask
        self.reserve(size)
        entry = &self.words[self.count]
        entry.hash, entry.begin, entry.size, entry.last, entry.count = hash, self.arena_bytes, size, block, 1
        memcpy(self.arena + self.arena_bytes, word, size)
        self.arena_bytes += size
        self.count += 1
        self.slots[slot] = self.count
        self.pair(self.count - 1, block)
        if 2 * self.count > self.mask:
            self.spread()
        return 0

    cdef int pair(self, Py_ssize_t word, int block) except -1:
        cdef void* moved
        if self.pair_count == self.pair_capacity:
            self.pair_capacity = max(1024, 2 * self.pair_capacity)
            moved = realloc(self.pairs, 2 * self.pair_capacity * sizeof(int32_t))
            if moved == NULL:
                raise MemoryError
            self.pairs = <int32_t*> moved
        self.pairs[2 * self.pair_count] = word
        self.pairs[2 * self.pair_count + 1] = block
        self.pair_count += 1
        return 0

    cdef int reserve(self, Py_ssize_t size) except -1:
        cdef void* moved
        if self.arena_bytes + size > 0x7FFFFFFF:
            raise MemoryError("one file has more than 2 GB of different words")
        if self.count == self.capacity:
            self.capacity = max(1024, 2 * self.capacity)
            moved = realloc(self.words, self.capacity * sizeof(Word))
            if moved == NULL:
                raise MemoryError
            self.words = <Word*> moved
        if self.arena_bytes + size > self.arena_capacity:
            self.arena_capacity = max(1 << 14, 2 * self.arena_capacity, self.arena_bytes + size)
            moved = realloc(self.arena, self.arena_capacity)
            if moved == NULL:
                raise MemoryError
            self.arena = <uint8_t*> moved
        return 0

    cdef int spread(self) except -1:
        """Twice as many slots."""
        cdef Py_ssize_t mask = 2 * self.mask + 1, number, slot
        cdef int32_t* slots = <int32_t*> calloc(mask + 1, sizeof(int32_t))
        if slots == NULL:
            raise MemoryError
        for number in range(self.count):
            slot = self.words[number].hash & mask
            while slots[slot]:
                slot = (slot + 1) & mask
            slots[slot] = number + 1
        free(self.slots)
        self.slots, self.mask = slots, mask
        return 0

    def texts(self):
        """The words, in the order in which they came: offsets (int32) and bytes, as Arrow has texts."""
        offsets = bytearray(4 * (self.count + 1))
        cdef int32_t[::1] out = memoryview(offsets).cast("i")
        cdef Py_ssize_t number
        for number in range(self.count):
            out[number] = self.words[number].begin
        out[self.count] = self.arena_bytes
        return bytes(offsets), bytes(self.arena[: self.arena_bytes]) if self.arena_bytes else b""

    def blocks(self, Py_ssize_t most):
        """By word, in the same order: the blocks that have it, none if these are more than `most`; offsets (int32) and numbers
        (int32), as Arrow has lists."""
        offsets = bytearray(4 * (self.count + 1))
        cdef int32_t[::1] begins = memoryview(offsets).cast("i")
        cdef Py_ssize_t number, total = 0
        for number in range(self.count):
            begins[number] = total
            if self.words[number].count <= most:
                total += self.words[number].count
        begins[self.count] = total
        numbers = bytearray(4 * max(total, 1))
        places = bytearray(offsets)
        cdef int32_t[::1] out = memoryview(numbers).cast("i")
        cdef int32_t[::1] place = memoryview(places).cast("i")
        cdef int32_t word
        for number in range(self.pair_count):
            word = self.pairs[2 * number]
            if self.words[word].count <= most:
                out[place[word]] = self.pairs[2 * number + 1]
                place[word] += 1
        return bytes(offsets), bytes(numbers)[: 4 * total]


cdef inline bint is_ascii(const uint8_t[::1] data, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef uint8_t all = 0
    while at < end:
        all |= data[at]
        at += 1
    return all < 0x80
