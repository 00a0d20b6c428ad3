// graphile-worker: with batching its fastest published setting, without it the default.
import { run, makeWorkerUtils, Logger } from "graphile-worker";
import { hit, main, start, URL, workOf } from "./line.mjs";

const logger = new Logger(() => () => {});

function preset({ batching, slots = 24 }) {
  const batched = { localQueue: { size: 500, refetchDelay: { durationMs: 10 } }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
  const single = { localQueue: { size: -1 }, completeJobBatchDelay: -1, failJobBatchDelay: -1 };
  // With many slots most of them wait for their handler, not for a connection.
  const connections = Math.min(slots, 24) + 1;
  return {
    worker: { connectionString: URL, concurrentJobs: slots, maxPoolSize: connections, logger, ...(batching ? batched : single) },
  };
}

async function setup() {
  const utils = await makeWorkerUtils({ connectionString: URL, logger });
  await utils.migrate();
  await utils.release();
}

async function worker(config) {
  const perform = workOf(config);
  const noop = (payload) => {
    hit(payload);
    return perform?.();
  };
  start(config);
  await run({ preset: preset(config), taskList: { noop } });
}

async function opener() {
  const utils = await makeWorkerUtils({ connectionString: URL, logger });
  return {
    one: (payload) => utils.addJob("noop", payload),
    many: (payloads) => utils.addJobs(payloads.map((payload) => ({ identifier: "noop", payload }))),
  };
}

await main(setup, worker, opener, 10_000);
