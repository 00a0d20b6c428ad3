// node build/every.js BATCH: enqueue a job with each option, for the test of the producer.
import pg from "pg";

import { enqueue, type Options } from "./redrive.js";

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
const payload = { text: 'naïve "quotes"' };
const jobs: Options[] = [
  {
    queue: "mail", runAt: new Date("2100-01-02T03:04:05Z"), priority: -3, maxAttempts: 7, idempotencyKey: "key-1",
    orderingKey: "order-1", tenant: "acme", expiresIn: 5400, headers: { lang: "fr" }, batch: process.argv[2],
  },
  { delay: 1500, uniqueFor: 3600, uniqueBy: ["text"], onConflict: "replace" },
  {},
];
for (const options of jobs) {
  await enqueue(client, "every.option", payload, options);
}
await enqueue(client, "every.option", {}, { queue: "No Queue" }).catch((error) => console.log(error.code, error.message));
await client.end();
