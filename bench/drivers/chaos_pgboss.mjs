// pg-boss: 10 seconds are the shortest heartbeat there is.
import { PgBoss } from "pg-boss";
import { DRAIN, handle, main, URL } from "./chaos.mjs";

const HEARTBEAT = 10;

async function open(options = {}) {
  const boss = new PgBoss({ connectionString: URL, ...options });
  boss.on("error", (error) => console.error(error.message));
  await boss.start();
  return boss;
}

async function setup() {
  const boss = await open();
  await boss.createQueue("chaos", {
    retryLimit: 100,
    retryDelay: 1,
    expireInSeconds: 60,
    heartbeatSeconds: HEARTBEAT,
  });
  await boss.stop({ graceful: false });
}

async function worker(slots) {
  const boss = await open({
    max: slots + 2,
    superviseIntervalSeconds: 1,
    monitorIntervalSeconds: 1,
    maintenanceIntervalSeconds: 1,
  });
  process.once("SIGTERM", async () => {
    await boss.stop({ graceful: true, timeout: DRAIN * 1000 });
    process.exit(0);
  });
  const options = {
    batchSize: 1,
    localConcurrency: slots,
    pollingIntervalSeconds: 0.5,
    includeMetadata: true,
  };
  await boss.work("chaos", options, ([job]) => handle(job.data, job.retryCount));
}

async function opener() {
  const boss = await open({ supervise: false, schedule: false });
  return (payload) => boss.send("chaos", payload);
}

await main(setup, worker, opener);
