// JavaScriptCore: its own heaps of reserved addresses, a collector that stops threads by signals, workers, WebAssembly, a child.
import { Worker, isMainThread, parentPort } from "node:worker_threads";
if (!isMainThread) {
    let all = []; for (let n = 0; n < 200000; n++) all.push({ n, s: "x" + n });
    parentPort.postMessage(all.reduce((sum, x) => sum + x.n, 0));
} else {
    const table = new Map(); for (let n = 0; n < 500000; n++) table.set("k" + n, [n]);
    Bun.gc(true); console.log("map", table.size);
    const buffers = []; for (let n = 0; n < 20; n++) { const b = new Uint8Array(10_000_000); b[n] = n; buffers.push(b); }
    console.log("buffers", buffers.reduce((s, b, n) => s + b[n], 0));
    const deep = n => 1 + deep(n + 1); try { deep(0); } catch (e) { console.log("deep", e.constructor.name); }
    const wasm = new WebAssembly.Memory({ initial: 10, maximum: 1000 }); wasm.grow(500); new Uint8Array(wasm.buffer)[20_000_000] = 7;
    console.log("wasm", new Uint8Array(wasm.buffer)[20_000_000], wasm.buffer.byteLength);
    const fib = n => n < 2 ? 1 : fib(n - 1) + fib(n - 2); console.log("fib", fib(27));
    const sums = await Promise.all([1, 2, 3].map(() => new Promise(done => { const w = new Worker(new URL(import.meta.url)); w.on("message", m => { done(m); }); })));
    console.log("workers", sums);
    const shared = new SharedArrayBuffer(50_000_000); new Int32Array(shared)[1000] = 5; console.log("shared", Atomics.add(new Int32Array(shared), 1000, 2));
    console.log("child", Bun.spawnSync(["sh", "-c", "echo hi; exit 3"]).exitCode);
    Bun.gc(true); console.log("sorted", Array.from({ length: 300000 }, (_, n) => n * 7919 % 300007).sort((a, b) => a - b)[1000]); process.exit(0);
}
