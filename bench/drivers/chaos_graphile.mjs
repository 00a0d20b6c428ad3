// graphile-worker: what a lost worker held is released after four hours, which is no setting.
import { makeWorkerUtils, run } from "graphile-worker";
import { DRAIN, handle, main, URL } from "./chaos.mjs";

async function setup() {
  const utils = await makeWorkerUtils({ connectionString: URL });
  await utils.migrate();
  await utils.release();
}

async function worker(slots) {
  const runner = await run({
    preset: {
      worker: {
        connectionString: URL,
        concurrentJobs: slots,
        maxPoolSize: slots + 2,
        pollInterval: 500,
        gracefulShutdownAbortTimeout: DRAIN * 1000,
        minResetLockedInterval: 1000,
        maxResetLockedInterval: 2000,
      },
    },
    taskList: { chaos: (payload, helpers) => handle(payload, helpers.job.attempts) },
  });
  await runner.promise;
}

async function opener() {
  const utils = await makeWorkerUtils({ connectionString: URL });
  return (payload) => utils.addJob("chaos", payload, { maxAttempts: 100 });
}

await main(setup, worker, opener);
