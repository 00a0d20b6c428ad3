// pg-boss.
import { PgBoss } from "pg-boss";
import { hit, main, start, URL, workOf } from "./line.mjs";

async function open(options = {}) {
  const boss = new PgBoss({ connectionString: URL, useListenNotify: true, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

async function setup() {
  const boss = await open();
  await boss.createQueue("bench", { notify: true });
  await boss.stop({ graceful: false });
}

async function worker(config) {
  const boss = await open({ max: 4 });
  const perform = workOf(config);
  start(config);
  const options = { batchSize: config.batch, localConcurrency: 1, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
  await boss.work("bench", options, async (jobs) => {
    for (const job of jobs) hit(job.data);
    if (perform) await Promise.all(jobs.map(() => perform()));
  });
}

async function opener() {
  const boss = await open({ supervise: false, schedule: false });
  return {
    one: (payload) => boss.send("bench", payload),
    many: (payloads) => boss.insert("bench", payloads.map((data) => ({ data }))),
  };
}

await main(setup, worker, opener);
