// What chaos.py says, for Node.
import fs from "node:fs";
import readline from "node:readline";

export const URL = process.env.CHAOS_URL;
export const TTL = 3;
export const DRAIN = 4;

let ledger;
function note(phase, n, token) {
  ledger ??= fs.openSync(`${process.env.CHAOS_LEDGER}/ledger-${process.pid}`, "a");
  const at = Number(process.hrtime.bigint()) / 1e9; // CLOCK_MONOTONIC
  fs.writeSync(ledger, `${phase} ${n} ${token} ${process.pid} ${process.ppid} ${at.toFixed(6)}\n`);
}

const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

export async function handle({ n, seconds }, token) {
  note("start", n, token);
  await sleep(seconds);
  note("end", n, token);
}

async function produce(opener) {
  const late = () => sleep(5).then(() => Promise.reject(new Error("late")));
  let add = null;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [n, seconds] = line.split(" ").map(Number);
    try {
      add ??= await opener();
      await Promise.race([add({ n, seconds }), late()]);
      process.stdout.write(`${n}\n`);
    } catch {
      await sleep(0.1);
    }
  }
}

export async function main(setup, worker, opener) {
  const [command, ...rest] = process.argv.slice(2);
  process.on("unhandledRejection", () => {});
  if (command === "worker") return worker(+rest[0]);
  await (command === "setup" ? setup() : produce(opener));
  process.exit(0);
}
