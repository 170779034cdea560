// recorder_reads.js FILE [storm] is recorder_calls of node: it prints "ready", and from a line on
// reads a byte of itself at the position N for N = 1, 2, …, which takes one uv_fs_read
// each. FILE has how many it has begun and how many have returned. With storm it gets a signal that it
// handles at each, and starts a process at some.
const fs = require('fs');
const counts = fs.openSync(process.argv[2], 'w+', 0o600), self = fs.openSync(__filename, 'r');
const {execFileSync} = require('child_process');
const storm = process.argv[3] === 'storm';
if (storm) process.on('SIGUSR2', () => {});
const b = new BigUint64Array(1), byte = Buffer.alloc(1);
fs.writeSync(counts, Buffer.alloc(64 * 64), 0, 64 * 64, 0);
console.log('ready');
fs.readSync(0, byte, 0, 1);
for (let n = 1n; ; n++) {
	b[0] = n;
	fs.writeSync(counts, b, 0, 8, 0);
	fs.readSync(self, byte, 0, 1, n);
	fs.writeSync(counts, b, 0, 8, 8);
	if (storm) {
		process.kill(process.pid, 'SIGUSR2');
		if (n % 500n === 0n) execFileSync('true');
	}
}
