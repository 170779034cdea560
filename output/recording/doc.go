// Package recording keeps hits in a file that needs nothing else to be read: a
// recording. It holds what a report on another machine wants: events with their
// fields and types, values, names of places, stacks, threads, the modules with their
// build-ids, clocks, and what was lost.
//
// # The file
//
// Numbers are little-endian. The file begins with Magic and a version, u32; a
// reader refuses versions that it doesn't know. Blocks follow, each
//
//	0   type, a letter
//	1   three zeros
//	4   u32 length of the payload, at most MaxBlock
//	8   u32 CRC-32C of the first eight bytes and the payload
//	12  payload
//
// H, the first block, is the Header, M a Modules and E, the last, an End, all as
// JSON. A block is written whole or not at all, as far as the
// system lets; a file that was cut off is good up to the block that isn't whole.
//
// # Records as they lie in rings
//
// R holds the records of processes' rings, byte for byte (probe/ring has their layout):
//
//	0   u64, i64: a moment, as the counter that time stamps are of, and in ns of CLOCK_MONOTONIC
//	16  u64: of all records with older time stamps none follows in later blocks, but for
//	    those that a program was interrupted in writing
//	24  parts: u32 process, u32 CPU, u32 length, and so many bytes of records
//
// Records of a ring are nearly in order, those of two are not: a reader brings into order
// what it has up to the time that a block says. Z is R compressed: its length, u32, and a
// frame of zstd.
//
// What is needed to make hits of records stands before the block that has the first of
// them. F, JSON: a process, with a moment on both clocks. P, JSON: probes by the number in
// their records, and how the records look (fetch.Program.Portable); a number may become
// another probe's. N: a process, and then as below p, a place of which the whole address
// is in a record, and t, a thread with the number by which it is in records before.
//
// # Hits
//
// D holds hits that were worked out before they were written: those of files of version
// 1, of snapshots, and such as need the process for that, as of stacks.
//
// A hit is a record of a letter and unsigned varints (as in protocol buffers), texts are a
// length and bytes. What hits have in common is defined before them, numbered from
// 0 in the order of definitions, one count for each letter:
//
//	r  all definitions are forgotten
//	p  a place: name, module, address, offset, size
//	t  a thread: process, thread, name
//	e  an event: group, name, flags (1: of returns; 2: at functions' entries; 4: of Go; 8: a statically defined probe), number of fields, and of each
//	   its name, its type as definitions have it, its kind
//	s  a stack: end, number of frames, the places, innermost first
//	h  a hit: event, thread, CPU, time since the hit before (zigzag), place, then
//	   of returns the caller's place, of functions' entries the stack pointer, or 0;
//	   of Go the goroutine's address; time since the call and 1, or 0; stack and 1, or 0; and the values of its
//	   fields, each a state and what the kind says
package recording

// Magic begins every recording.
const Magic = "\x89KPROBE\n"

// Version is that of files which are written.
const Version = 3

// oldest is the oldest version that a reader knows: of files that have no records. The records of
// short have other state words (ring.NextShort).
const (
	oldest = 1
	short  = 2
)

// The bounds of a file, which writer and reader keep.
const (
	MaxBlock  = 1 << 20 // bytes of a payload
	maxDefs   = 1 << 18 // definitions of one letter between two r
	maxMemory = 1 << 26 // bytes of definitions between two r
	maxText   = 1 << 16 // bytes of a text
	maxFields = 1 << 10
	maxFrames = 1 << 10
)

// The types of blocks.
const (
	blockHeader  = 'H'
	blockModules = 'M'
	blockData    = 'D'
	blockProcess = 'F'
	blockProbes  = 'P'
	blockNames   = 'N'
	blockRecords = 'R'
	blockPacked  = 'Z'
	blockEnd     = 'E'
)

const blockHead = 12
