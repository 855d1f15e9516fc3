// The collector, typed arrays outside it, worker threads with shared memory, WebAssembly memory that grows, and a child.
const { Worker } = require('worker_threads');
const { execFileSync } = require('child_process');
let objects = Array.from({ length: 1e6 }, (_, i) => ({ i, s: 'x' + i }));
objects = objects.filter(o => o.i % 4 === 0);
console.log(objects.length, objects.reduce((n, o) => n + o.s.length, 0));
const buffers = Array.from({ length: 64 }, (_, i) => Buffer.alloc(4 << 20, i));
console.log(buffers.reduce((n, b) => n + b[b.length - 1], 0));
const memory = new WebAssembly.Memory({ initial: 10, maximum: 4000 });
memory.grow(2000);
new Uint8Array(memory.buffer).fill(3);
console.log(memory.buffer.byteLength);
const shared = new SharedArrayBuffer(4);
const source = `const { workerData } = require('worker_threads'); const a = new Int32Array(workerData);
  const own = []; for (let i = 0; i < 1e5; i++) own.push({ i }); Atomics.add(a, 0, own.length);`;
let left = 4;
for (let i = 0; i < 4; i++) new Worker(source, { eval: true, workerData: shared }).on('exit', () => {
  if (--left) return;
  console.log(new Int32Array(shared)[0]);
  console.log(execFileSync(process.execPath, ['-e', 'console.log(Buffer.alloc(1e8, 1).length)']).toString().trim());
});
