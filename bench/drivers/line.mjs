// The protocol of line.py, for Node.
import fs from "node:fs";

export const URL = process.env.BENCH_URL;
const PROGRESS = process.env.BENCH_PROGRESS;
const FILLER = "x".repeat(+(process.env.BENCH_PAYLOAD ?? 0));

const now = () => (performance.timeOrigin + performance.now()) / 1000;
const say = (event) => process.stdout.write(JSON.stringify(event) + "\n");
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

let handled = 0;
let first = 0;

export function hit(payload) {
  if (handled++ === 0) first = now();
  if ("p" in payload) say({ ev: "lat", i: payload.i, t: now() });
}

export function workOf(config) {
  const [name, ms] = (config.work ?? "").split(":");
  if (name === "wait") return () => sleep(+ms);
  if (name === "spin") {
    return () => {
      const end = performance.now() + +ms;
      while (performance.now() < end);
    };
  }
  if (name === "fail") {
    return () => {
      throw new Error("the downstream said no");
    };
  }
  return null;
}

export function start(config) {
  let said = 0;
  let toldFirst = false;
  if (!config.quiet) {
    setInterval(() => {
      if (first && !toldFirst) {
        say({ ev: "first", t: first });
        toldFirst = true;
      }
      if (handled !== said) {
        said = handled;
        say({ ev: "n", n: said, t: now() });
      }
    }, 50);
  }
  say({ ev: "run", t: now() });
}

function progress() {
  try {
    return parseInt(fs.readFileSync(PROGRESS, "utf8")) || 0;
  } catch {
    return 0;
  }
}

const payloads = (from, count) =>
  Array.from({ length: count }, (_, k) => (FILLER ? { i: from + k, s: FILLER } : { i: from + k }));

async function enqueue({ one, many }, mode, count, chunk) {
  const batches = [];
  for (let at = 0; at < count; at += chunk) batches.push(payloads(at, Math.min(chunk, count - at)));
  const began = now();
  for (const batch of batches) {
    if (mode === "bulk") await many(batch);
    else for (const payload of batch) await one(payload);
  }
  say({ ev: "enqueued", n: count, secs: now() - began });
}

async function produce({ many }, seconds, batch, ahead) {
  const end = now() + seconds;
  let made = 0;
  while (now() < end) {
    while (made - progress() > ahead && now() < end) await sleep(3);
    await many(payloads(made, batch));
    made += batch;
  }
  say({ ev: "produced", n: made });
}

async function probe({ one }, i) {
  const called = now();
  await one({ i, p: 1 });
  say({ ev: "enq", i, t0: called, t1: now() });
}

async function load(queue, seconds, rate) {
  const began = now();
  let made = 0;
  let probes = 0;
  for (let elapsed = 0; (elapsed = now() - began) < seconds; ) {
    const due = Math.floor(elapsed * rate) - made;
    if (due > 0) {
      await queue.many(payloads(made, due));
      made += due;
    }
    if (elapsed * 40 >= probes) await probe(queue, 1_000_000_000 + ++probes);
    await sleep(10);
  }
  say({ ev: "produced", n: made });
}

async function probes(queue, count, interval) {
  for (let i = 0; i < count; i++) {
    await probe(queue, i);
    await sleep(interval * (0.75 + (0.5 * ((i * 7919) % 100)) / 100)); // jitter: not in step with anybody who polls
  }
}

export async function main(setup, worker, opener, chunk = 5000) {
  const [command, ...rest] = process.argv.slice(2);
  if (command === "worker") return worker(JSON.parse(rest[0]));
  if (command === "setup") {
    await setup();
    process.exit(0);
  }
  const queue = await opener();
  if (command === "enqueue") await enqueue(queue, rest[0], +rest[1], chunk);
  else if (command === "produce") await produce(queue, +rest[0], +rest[1], +rest[2]);
  else if (command === "load") await load(queue, +rest[0], +rest[1]);
  else if (command === "probe") await probes(queue, +rest[0], +rest[1]);
  process.exit(0);
}
