// node place.js CUSTOMER: place an order and enqueue its confirmation, in one transaction.
import pg from "pg";

import { enqueue } from "./build/redrive.js";

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
  await client.query("begin");
  const placed = await client.query("insert into orders (customer) values ($1) returning id", [process.argv[2]]);
  const order = placed.rows[0].id;
  const job = await enqueue(client, "order.confirm", { order }, { queue: "mail" });
  await client.query("commit"); // if it fails, there is no order and no job
  console.log(`order ${order}, job ${job}`);
} finally {
  await client.end();
}
